// Addresses that the server listens on.
#include "server/listen_address.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace attnd::server {
namespace {

absl::Status Bad(const std::string& flag, const std::string& text, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", text, ": ", why));
}

// The path of unix:path or unix:///path.
std::string UnixPath(const std::string& text) {
  const std::string path = text.substr(5);
  return path.rfind("//", 0) == 0 ? path.substr(2) : path;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& flag, const std::string& text) {
  constexpr char kExpected[] = "expected host:port with a port from 0 to 65535";
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return Bad(flag, text, kExpected);
  }
  HostPort result{text.substr(0, colon)};
  const std::string port = text.substr(colon + 1);
  if (port.find_first_not_of("0123456789") != std::string::npos ||
      !absl::SimpleAtoi(port, &result.port) || result.port > 65535) {
    return Bad(flag, text, kExpected);
  }
  std::string& host = result.host;
  if (host.front() == '[' && host.back() == ']' && host.size() > 2) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of("[]:/ \t") != std::string::npos) {
    return Bad(flag, text, "expected host:port; an IPv6 host is written [host]:port");
  }
  return result;
}

bool IsUnixAddress(const std::string& text) { return text.rfind("unix:", 0) == 0; }

absl::Status CheckListenAddress(const std::string& flag, const std::string& text) {
  if (!IsUnixAddress(text)) {
    return ParseHostPort(flag, text).status();
  }
  const std::string path = UnixPath(text);
  if (path.empty()) {
    return Bad(flag, text, "expected unix:path");
  }
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Bad(flag, text, "the path of a unix socket has at most 107 bytes");
  }
  return absl::OkStatus();
}

absl::Status CheckUnixSocketFree(const std::string& text) {
  if (!IsUnixAddress(text)) {
    return absl::OkStatus();
  }
  const std::string path = UnixPath(text);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return absl::OkStatus();  // binding will say what is wrong
  }
  const bool answered =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return answered ? Bad("listen", text, "in use: a server answers there") : absl::OkStatus();
}

std::string WithPort(const std::string& text, int port) {
  return text.substr(0, text.rfind(':') + 1) + std::to_string(port);
}

}  // namespace attnd::server
