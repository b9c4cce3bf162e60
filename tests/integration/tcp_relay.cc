// A relay in front of the server.
#include "tests/integration/tcp_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "kernels/check.h"

namespace attnd {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

}  // namespace

TcpRelay::TcpRelay(const std::string& target) : target_(target) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  Check(bind(listener_, generic, size) == 0 && listen(listener_, 16) == 0 &&
            getsockname(listener_, generic, &size) == 0,
        "the relay can listen");
  address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  acceptor_ = std::thread([this] { Accept(); });
}

TcpRelay::~TcpRelay() {
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  close(listener_);
  Break();
  for (std::thread& pump : pumps_) {
    pump.join();
  }
  for (int fd : sockets_) {
    close(fd);
  }
}

void TcpRelay::Accept() {
  for (;;) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) {
      return;
    }
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(std::atoi(target_.c_str() + target_.rfind(':') + 1));
    Check(connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
          "the relay's target answers");
    ++connections_;
    const std::lock_guard<std::mutex> lock(mutex_);
    sockets_.insert(sockets_.end(), {client, server});
    pumps_.emplace_back([this, client, server] { Pump(client, server, &to_server_); });
    pumps_.emplace_back([this, client, server] { Pump(server, client, &to_client_); });
  }
}

void TcpRelay::Pump(int from, int to, std::atomic<int64_t>* count) {
  char buffer[65536];
  for (ssize_t got; (got = recv(from, buffer, sizeof(buffer), 0)) > 0;) {
    *count += got;
    for (ssize_t at = 0; at < got;) {
      const ssize_t sent = send(to, buffer + at, static_cast<size_t>(got - at), MSG_NOSIGNAL);
      if (sent <= 0) {
        return;
      }
      at += sent;
    }
  }
  shutdown(to, SHUT_RDWR);
}

void TcpRelay::Break() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int fd : sockets_) {
    // Connecting to "nothing" resets a connection and keeps the descriptor.
    sockaddr reset = {};
    reset.sa_family = AF_UNSPEC;
    connect(fd, &reset, sizeof(reset));
  }
}

}  // namespace attnd
