// GET /metrics of a server.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace attnd::attnctl {

struct HttpTarget {
  std::string host;  // an IPv6 address without its brackets
  int port = 0;

  // "127.0.0.1:9470", "[::1]:9470".
  std::string Text() const;
};

// "HOST:PORT" or "http://HOST:PORT/". INVALID_ARGUMENT says what was expected.
absl::StatusOr<HttpTarget> ParseHttpTarget(const std::string& text);

// The answer's body. UNAVAILABLE in one line; takes a second to connect and 2 for the
// whole answer at most, beside what the resolution of a name takes.
absl::StatusOr<std::string> FetchMetrics(const HttpTarget& target);

}  // namespace attnd::attnctl
