// Addresses that the server listens on.
#include "server/listen_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

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

// Of a bind(), listen() or access() that failed.
absl::Status CannotBind(const std::string& flag, const std::string& text, int error) {
  const std::string why = error == EADDRINUSE      ? "in use"
                          : error == EADDRNOTAVAIL ? "not an address of this machine"
                                                   : std::strerror(error);
  return absl::UnavailableError(absl::StrCat("--", flag, "=", text, ": cannot be bound: ", why));
}

// 0, or errno.
int Listen(const addrinfo& where, BoundSocket* bound) {
  *bound = BoundSocket(socket(where.ai_family, where.ai_socktype | SOCK_CLOEXEC, 0),
                       where.ai_family == AF_INET6);
  const int yes = 1;
  if (bound->fd < 0 || setsockopt(bound->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(bound->fd, where.ai_addr, where.ai_addrlen) != 0 || listen(bound->fd, SOMAXCONN) != 0) {
    return errno;
  }
  return 0;
}

}  // namespace

BoundSocket::~BoundSocket() {
  if (fd >= 0) {
    close(fd);
  }
}

absl::StatusOr<BoundSocket> BindTcp(const std::string& flag, const std::string& text) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(flag, text);
  if (!parsed.ok()) {
    return parsed.status();
  }
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int unknown =
      getaddrinfo(parsed->host.c_str(), std::to_string(parsed->port).c_str(), &wanted, &list);
  if (unknown != 0) {
    return absl::UnavailableError(
        absl::StrCat("--", flag, "=", text, ": cannot be resolved: ", gai_strerror(unknown)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(list, &freeaddrinfo);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* where = list; where != nullptr; where = where->ai_next) {
    BoundSocket bound;
    error = Listen(*where, &bound);
    if (error == 0) {
      return bound;
    }
  }
  return CannotBind(flag, text, error);
}

absl::Status CheckAddressIsOurs(const std::string& flag, const std::string& text) {
  if (!IsUnixAddress(text)) {
    const absl::Status status = BindTcp(flag, WithPort(text, 0)).status();
    // The error with the port that was asked for.
    return status.ok()
               ? status
               : absl::Status(status.code(),
                              absl::StrReplaceAll(status.message(), {{WithPort(text, 0), text}}));
  }
  const std::string path = UnixPath(text);
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  return access(directory.c_str(), W_OK | X_OK) == 0 ? absl::OkStatus()
                                                     : CannotBind(flag, text, errno);
}

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
