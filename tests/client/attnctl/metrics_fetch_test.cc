// GET /metrics of servers that answer badly: one line, in time, and no more memory than an
// answer's.
#include "client/attnctl/metrics_fetch.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

namespace attnd::attnctl {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Accepts one connection, reads its request and hands it on.
class OneAnswer {
 public:
  explicit OneAnswer(std::function<void(int)> answer) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof(at));
    listen(listener_, 1);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
    target_ = {"127.0.0.1", ntohs(at.sin_port)};
    thread_ = std::thread([this, answer = std::move(answer)] {
      const int fd = accept(listener_, nullptr, nullptr);
      char buffer[4096];
      request_.assign(buffer, static_cast<size_t>(recv(fd, buffer, sizeof(buffer), 0)));
      answer(fd);
      close(fd);
    });
  }
  ~OneAnswer() {
    thread_.join();
    close(listener_);
  }

  const HttpTarget& target() const { return target_; }
  const std::string& request() const { return request_; }

 private:
  int listener_ = -1;
  HttpTarget target_;
  std::string request_;
  std::thread thread_;
};

bool Send(int fd, const std::string& text) {
  return send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

// `text` again and again until the client is gone; `sent` says how much.
void SendForever(int fd, const std::string& text, size_t* sent) {
  while (*sent < size_t{1} << 30 && Send(fd, text)) {
    *sent += text.size();
  }
}

std::string ErrorOf(const HttpTarget& target) {
  const auto body = FetchMetrics(target);
  return body.ok() ? "no error" : std::string(body.status().message());
}

TEST(MetricsFetch, ABodyHoweverItIsFramed) {
  for (const char* answer :
       {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n", "HTTP/1.0 200 OK\r\n\r\na 1\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na \r\n2\r\n1\n\r\n0\r\n\r\n"}) {
    std::string request;
    {
      OneAnswer server([&](int fd) { Send(fd, answer); });
      const auto body = FetchMetrics(server.target());
      ASSERT_TRUE(body.ok()) << body.status();
      EXPECT_EQ(*body, "a 1\n");
      request = server.request();
    }
    EXPECT_EQ(request.rfind("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:", 0), 0U);
  }
}

TEST(MetricsFetch, ErrorsAreOneLine) {
  EXPECT_EQ(ErrorOf({"127.0.0.1", 1}), "no connection");
  EXPECT_EQ(ErrorOf({"no.such.name.invalid", 1}), "no connection");
  const auto error = [](const std::string& answer) {
    OneAnswer server([&](int fd) { Send(fd, answer); });
    return ErrorOf(server.target());
  };
  EXPECT_EQ(error("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"), "HTTP status 503");
  EXPECT_EQ(error("SSH-2.0-OpenSSH_9.2p1\r\n\r\n"), "no HTTP answer");
  EXPECT_EQ(error(""), "no answer, or a part of one");
  EXPECT_EQ(error("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na"), "no answer, or a part of one");
  EXPECT_EQ(error("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"),
            "an answer of more than 16 MiB");
}

TEST(MetricsFetch, AByteNowAndThenDoesNotPutTheEndOff) {
  for (const char* begin : {"HTTP/1.1 200 OK\r\nA: ", "HTTP/1.1 200 OK\r\n\r\n"}) {
    OneAnswer server([&](int fd) {
      Send(fd, begin);
      const Clock::time_point last = Clock::now() + std::chrono::seconds(8);
      while (Clock::now() < last && Send(fd, "x")) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    });
    const Clock::time_point start = Clock::now();
    EXPECT_EQ(ErrorOf(server.target()), "no answer, or no whole one within 2 s");
    EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(3500));
  }
}

TEST(MetricsFetch, WhatHasNoEndIsCut) {
  size_t sent = 0;
  const auto error = [&](const std::string& begin, const std::string& rest) {
    sent = 0;
    OneAnswer server([&](int fd) {
      Send(fd, begin);
      SendForever(fd, rest, &sent);
    });
    return ErrorOf(server.target());
  };
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  EXPECT_THAT(error(ok, "A: b\r\n"), HasSubstr("headers have more than 16 KiB"));
  EXPECT_LT(sent, size_t{16} << 20);
  EXPECT_THAT(error(ok, std::string(1000, 'x')), HasSubstr("more than 16 KiB"));
  EXPECT_LT(sent, size_t{16} << 20);
  EXPECT_EQ(error(ok + "\r\n", std::string(10'000, 'x')), "an answer of more than 16 MiB");
  EXPECT_LT(sent, size_t{64} << 20);
  const std::string chunked = ok + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_NE(error(chunked, "1;" + std::string(1000, 'x')), "no error");
  EXPECT_LT(sent, size_t{16} << 20);
  EXPECT_NE(error(chunked + "0\r\n", "A: b\r\n"), "no error");
  EXPECT_LT(sent, size_t{16} << 20);
}

}  // namespace
}  // namespace attnd::attnctl
