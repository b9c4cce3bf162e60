// Addresses that the server listens on: host:port, [ipv6]:port, unix:path.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace attnd::server {

struct HostPort {
  std::string host;  // without brackets
  int port = 0;      // 0: any free one
};

// "127.0.0.1:8470", "[::1]:0". `flag` names the source in the error.
absl::StatusOr<HostPort> ParseHostPort(const std::string& flag, const std::string& text);

// True for "unix:path" and "unix:///path".
bool IsUnixAddress(const std::string& text);

// Syntax only.
absl::Status CheckListenAddress(const std::string& flag, const std::string& text);

// A socket that listens; closes it.
struct BoundSocket {
  BoundSocket() = default;
  BoundSocket(int descriptor, bool is_v6) : fd(descriptor), v6(is_v6) {}
  ~BoundSocket();
  BoundSocket(BoundSocket&& other) noexcept : fd(std::exchange(other.fd, -1)), v6(other.v6) {}
  BoundSocket& operator=(BoundSocket&& other) noexcept {
    std::swap(fd, other.fd);
    v6 = other.v6;
    return *this;
  }

  int fd = -1;  // -1: none
  bool v6 = false;
};

// Listens at "host:port", with SO_REUSEADDR. The error names the flag and says why.
absl::StatusOr<BoundSocket> BindTcp(const std::string& flag, const std::string& text);

// Fails when nothing can ever listen there: an unknown name, another machine's address, a directory
// that is not there. A port in use is no such thing. Leaves nothing behind.
absl::Status CheckAddressIsOurs(const std::string& flag, const std::string& text);

// Fails when a server answers on that unix socket already: gRPC would unlink a live socket and
// take its place without a word. OK for other addresses.
absl::Status CheckUnixSocketFree(const std::string& text);

// "host:port" with the port filled in; brackets around an IPv6 host.
std::string WithPort(const std::string& text, int port);

}  // namespace attnd::server
