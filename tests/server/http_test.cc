// The HTTP side: its pages, and that nobody who connects keeps others from them.
#include "server/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/listen_address.h"

namespace attnd::server {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

// A client's connection, all by hand.
class Socket {
 public:
  explicit Socket(const std::string& address) {
    const int port = ParseHostPort("http", address)->port;
    const bool v6 = address.front() == '[';
    fd_ = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in v4_at = {};
    v4_at.sin_family = AF_INET;
    v4_at.sin_port = htons(static_cast<uint16_t>(port));
    v4_at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 v6_at = {};
    v6_at.sin6_family = AF_INET6;
    v6_at.sin6_port = htons(static_cast<uint16_t>(port));
    v6_at.sin6_addr = in6addr_loopback;
    connected_ = (v6 ? connect(fd_, reinterpret_cast<sockaddr*>(&v6_at), sizeof(v6_at))
                     : connect(fd_, reinterpret_cast<sockaddr*>(&v4_at), sizeof(v4_at))) == 0;
    const timeval limit = {10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool connected() const { return connected_; }
  bool Send(const std::string& text) const {
    return send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // Until the server closes, or 10 s without a byte.
  std::string ReadAll() const {
    std::string text;
    char buffer[65536];
    for (ssize_t got; (got = recv(fd_, buffer, sizeof(buffer), 0)) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }
  // The server has closed, at the latest after `wait`.
  bool ClosedWithin(milliseconds wait) const {
    pollfd polled = {fd_, POLLIN, 0};
    char byte = 0;
    return poll(&polled, 1, static_cast<int>(wait.count())) > 0 &&
           recv(fd_, &byte, 1, MSG_DONTWAIT) <= 0;
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
};

struct Answer {
  int status = 0;  // 0: none
  std::string head;
  std::string body;
};

Answer Ask(const std::string& address, const std::string& request) {
  const Socket socket(address);
  socket.Send(request);
  const std::string text = socket.ReadAll();
  const size_t split = text.find("\r\n\r\n");
  if (split == std::string::npos || text.rfind("HTTP/1.1 ", 0) != 0) {
    return {};
  }
  return {std::atoi(text.c_str() + 9), text.substr(0, split + 2), text.substr(split + 4)};
}

Answer Get(const std::string& address, const std::string& path, const std::string& headers = "") {
  return Ask(address, "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n");
}

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

class HttpTest : public ::testing::Test {
 protected:
  HttpHandlers Handlers() {
    return {[this] { return metrics_; }, [this] { return ready_; },
            [] { return std::string(R"({"state":"ready"})"); }};
  }
  void Start(HttpLimits limits = {}, const std::string& address = "127.0.0.1:0") {
    auto http = HttpServer::Start(address, Handlers(), limits);
    ASSERT_TRUE(http.ok()) << http.status();
    http_ = *std::move(http);
    address_ = http_->address();
  }
  // A probe is answered, and at once.
  void ExpectProbed() {
    const Clock::time_point begin = Clock::now();
    EXPECT_EQ(Get(address_, "/healthz").body, "ok\n");
    EXPECT_LT(Clock::now() - begin, milliseconds(1000));
  }

  std::string metrics_ = "a_metric 1\n";
  bool ready_ = false;
  std::unique_ptr<HttpServer> http_;
  std::string address_;
};

TEST_F(HttpTest, Routes) {
  Start();
  EXPECT_GT(ParseHostPort("http", address_)->port, 0);
  EXPECT_EQ(Get(address_, "/healthz").status, 200);
  EXPECT_EQ(Get(address_, "/readyz").status, 503);
  EXPECT_EQ(Get(address_, "/readyz").body, "not ready\n");
  ready_ = true;
  EXPECT_EQ(Get(address_, "/readyz").status, 200);
  EXPECT_EQ(Get(address_, "/metrics").body, "a_metric 1\n");
  EXPECT_THAT(Get(address_, "/metrics?x=1").head,
              HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_EQ(Get(address_, "/status.json").body, R"({"state":"ready"})");
  EXPECT_THAT(Get(address_, "/status.json").head, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(Get(address_, "/").body, HasSubstr("<title>attnd</title>"));
  EXPECT_EQ(Get(address_, "/nothing").status, 404);
  EXPECT_THAT(Get(address_, "/nothing").body, StartsWith("not found"));
}

TEST_F(HttpTest, OnIpv6TooOrRefusedWhereThereIsNone) {
  if (!BindTcp("http", "[::1]:0").ok()) {
    EXPECT_FALSE(HttpServer::Start("[::1]:0", Handlers(), {}).ok());
    return;
  }
  Start({}, "[::1]:0");
  EXPECT_THAT(address_, StartsWith("[::1]:"));
  EXPECT_EQ(Get(address_, "/healthz").body, "ok\n");
}

TEST_F(HttpTest, NothingIsStoredOrGuessed) {
  Start();
  for (const char* path : {"/", "/status.json", "/metrics", "/readyz", "/nothing"}) {
    const Answer answer = Get(address_, path);
    EXPECT_THAT(answer.head, HasSubstr("Cache-Control: no-store\r\n")) << path;
    EXPECT_THAT(answer.head, HasSubstr("X-Content-Type-Options: nosniff\r\n")) << path;
    EXPECT_THAT(answer.head, HasSubstr("Connection: close\r\n")) << path;
  }
}

TEST_F(HttpTest, ThePagesOwnScriptRunsAlone) {
  Start();
  std::string before;
  for (int i = 0; i < 2; ++i) {
    const Answer answer = Get(address_, "/");
    const size_t at = answer.head.find("Content-Security-Policy: ");
    ASSERT_NE(at, std::string::npos);
    const std::string policy = answer.head.substr(at + 25, answer.head.find('\r', at) - at - 25);
    EXPECT_THAT(policy, StartsWith("default-src 'none'; "));
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
    const size_t begin = policy.find("script-src 'nonce-") + 18;
    const std::string nonce = policy.substr(begin, policy.find('\'', begin) - begin);
    EXPECT_EQ(nonce.size(), 32U);
    EXPECT_NE(nonce, before) << "an answer's is of no use for another";
    before = nonce;
    EXPECT_THAT(answer.body, HasSubstr("<script nonce=\"" + nonce + "\">"));
    EXPECT_THAT(answer.body, HasSubstr("<style nonce=\"" + nonce + "\">"));
    EXPECT_THAT(answer.body, Not(HasSubstr("NONCE")));
    // Nothing of it comes from elsewhere.
    for (const char* reference : {"src=\"http", "href=\"http", "url(", "@import", "//cdn"}) {
      EXPECT_EQ(answer.body.find(reference), std::string::npos) << reference;
    }
  }
}

TEST_F(HttpTest, HeadIsGetWithoutItsBody) {
  Start();
  const Answer answer = Ask(address_, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.head, HasSubstr("Content-Length: 11\r\n"));
  EXPECT_EQ(answer.body, "");
}

TEST_F(HttpTest, WhatIsNoGetIsRefused) {
  Start();
  const Answer post = Ask(address_, "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(post.status, 405);
  EXPECT_THAT(post.head, HasSubstr("Allow: GET, HEAD\r\n"));
  EXPECT_EQ(Ask(address_, "BREW / HTTP/1.1\r\n\r\n").status, 405);
  EXPECT_EQ(Get(address_, "/metrics", "Content-Length: 3\r\n").status, 413);
  EXPECT_EQ(Get(address_, "/metrics", "Content-Length: 0\r\n").status, 200);
  EXPECT_EQ(Get(address_, "/metrics", "Transfer-Encoding: chunked\r\n").status, 413);
  for (const char* bad :
       {"\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"}) {
    EXPECT_EQ(Ask(address_, bad).status, 400) << bad;
  }
  ExpectProbed();
}

TEST_F(HttpTest, AnOldClientAndASlowOneAreAnswered) {
  Start();
  EXPECT_EQ(Ask(address_, "GET /healthz HTTP/1.0\r\n\r\n").body, "ok\n");
  const Socket socket(address_);
  for (const char byte : std::string("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")) {
    ASSERT_TRUE(socket.Send(std::string(1, byte)));
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_THAT(socket.ReadAll(), HasSubstr("\r\n\r\nok\n"));
}

TEST_F(HttpTest, RangesAreIgnored) {
  metrics_.assign(30'000, 'm');
  Start();
  std::string ranges = "Range: bytes=0-";
  while (ranges.size() < 8000) {
    ranges += ",0-";
  }
  const Answer answer = Get(address_, "/metrics", ranges + "\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, metrics_);
  EXPECT_EQ(Get(address_, "/metrics", "Range: bytes=5-6\r\n").body, metrics_);
}

TEST_F(HttpTest, EndlessHeadersEndAtEightKibibytes) {
  Start();
  for (const std::string& line : {std::string("a: b\r\n"), std::string(1000, 'x')}) {
    const Socket socket(address_);
    ASSERT_TRUE(socket.Send("GET /metrics HTTP/1.1\r\n"));
    size_t sent = 0;
    while (sent < size_t{64} << 20 && socket.Send(line)) {
      sent += line.size();
    }
    // What the server and the two kernels' buffers take.
    EXPECT_LT(sent, size_t{16} << 20);
  }
  const std::string long_header = "A: " + std::string(9000, 'x') + "\r\n";
  EXPECT_EQ(Get(address_, "/metrics", long_header).status, 431);
  ExpectProbed();
}

TEST_F(HttpTest, SlowConnectionsKeepNobodyWaitingAndEnd) {
  Start({.deadline = milliseconds(600)});
  const Clock::time_point begin = Clock::now();
  std::vector<std::unique_ptr<Socket>> slow;
  for (int i = 0; i < 64; ++i) {
    slow.push_back(std::make_unique<Socket>(address_));
    ASSERT_TRUE(slow.back()->Send("GET / HTTP/1.1\r\n"));
  }
  while (Clock::now() - begin < milliseconds(500)) {
    for (const auto& socket : slow) {
      socket->Send("a");
    }
    ExpectProbed();
  }
  // A byte now and then does not put the deadline off.
  for (const auto& socket : slow) {
    EXPECT_TRUE(socket->ClosedWithin(milliseconds(1000)));
  }
  EXPECT_LT(Clock::now() - begin, milliseconds(3000));
}

TEST_F(HttpTest, AnAnswerThatIsNotReadEndsToo) {
  metrics_.assign(size_t{32} << 20, 'm');
  Start({.deadline = milliseconds(300)});
  const Socket socket(address_);
  ASSERT_TRUE(socket.Send("GET /metrics HTTP/1.1\r\n\r\n"));
  ExpectProbed();
  std::this_thread::sleep_for(milliseconds(600));
  EXPECT_LT(socket.ReadAll().size(), metrics_.size());
}

TEST_F(HttpTest, IdleConnectionsAreBoundedAndTheOldestGoes) {
  Start({.deadline = milliseconds(60'000), .connections = 32});
  const size_t before = OpenDescriptors();
  std::vector<std::unique_ptr<Socket>> idle;
  for (size_t i = 1; i <= 300; ++i) {
    idle.push_back(std::make_unique<Socket>(address_));
    ASSERT_TRUE(idle.back()->connected());
    if (i % 50 == 0) {
      ExpectProbed();
    }
  }
  EXPECT_LE(OpenDescriptors(), before + idle.size() + 32);
  EXPECT_TRUE(idle.front()->ClosedWithin(milliseconds(1000)));
  EXPECT_FALSE(idle.back()->ClosedWithin(milliseconds(50)));
}

TEST_F(HttpTest, WithoutDescriptorsTheOldestGoesToo) {
  Start({.deadline = milliseconds(60'000)});
  std::vector<std::unique_ptr<Socket>> idle;
  for (int i = 0; i < 8; ++i) {
    idle.push_back(std::make_unique<Socket>(address_));
  }
  ExpectProbed();
  rlimit saved = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &saved), 0);
  const Socket late(address_);
  const rlimit none = {3, saved.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  late.Send("GET /healthz HTTP/1.1\r\n\r\n");
  std::this_thread::sleep_for(milliseconds(200));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &saved), 0);
  EXPECT_THAT(late.ReadAll(), HasSubstr("ok\n"));
  ExpectProbed();
}

TEST_F(HttpTest, PagesThatStayConnectedDoNotKeepProbesWaiting) {
  Start();
  std::vector<std::unique_ptr<Socket>> pages;
  for (int i = 0; i < 16; ++i) {
    pages.push_back(std::make_unique<Socket>(address_));
    pages.back()->Send("GET /status.json HTTP/1.1\r\nConnection: keep-alive\r\n\r\n");
  }
  ExpectProbed();
}

TEST_F(HttpTest, AHandlerThatThrowsIsAStatus) {
  HttpHandlers handlers = Handlers();
  handlers.metrics = []() -> std::string { throw std::runtime_error("no"); };
  const auto http = HttpServer::Start("127.0.0.1:0", handlers);
  ASSERT_TRUE(http.ok());
  EXPECT_EQ(Get((*http)->address(), "/metrics").status, 500);
  EXPECT_EQ(Get((*http)->address(), "/healthz").status, 200);
}

TEST_F(HttpTest, WhatCannotBeBoundIsRefusedWithItsReason) {
  Start();
  const auto error = [this](const std::string& address) {
    return std::string(HttpServer::Start(address, Handlers()).status().message());
  };
  EXPECT_EQ(error(address_), "--http=" + address_ + ": cannot be bound: in use");
  EXPECT_EQ(error("192.0.2.1:0"),
            "--http=192.0.2.1:0: cannot be bound: not an address of this machine");
  EXPECT_THAT(error("no.such.name.invalid:0"),
              StartsWith("--http=no.such.name.invalid:0: cannot be resolved: "));
}

TEST_F(HttpTest, AStoppedServersPortIsFree) {
  Start();
  const Socket connected(address_);
  ExpectProbed();
  http_.reset();
  EXPECT_TRUE(HttpServer::Start(address_, Handlers()).ok());
}

}  // namespace
}  // namespace attnd::server
