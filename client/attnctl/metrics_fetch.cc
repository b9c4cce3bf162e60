#include "client/attnctl/metrics_fetch.h"

#include <charconv>

#include "core/text.h"
#include "httplib.h"

namespace attnd::attnctl {
namespace {

constexpr time_t kConnectSeconds = 1;
constexpr time_t kReadSeconds = 2;
// A server's metrics take 30 kB.
constexpr size_t kMaxBytes = 16 << 20;

std::string ErrorText(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
      return "no connection";
    case httplib::Error::ConnectionTimeout:
      return "no connection within " + std::to_string(kConnectSeconds) + " s";
    case httplib::Error::Read:
      return "no answer, or none within " + std::to_string(kReadSeconds) + " s";
    case httplib::Error::Canceled:
      return "an answer of more than 16 MiB";
    default:
      return httplib::to_string(error);
  }
}

bool TakePrefix(const std::string& prefix, std::string* text) {
  const bool there = text->rfind(prefix, 0) == 0;
  text->erase(0, there ? prefix.size() : 0);
  return there;
}

}  // namespace

std::string HttpTarget::Text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

absl::StatusOr<HttpTarget> ParseHttpTarget(const std::string& text) {
  std::string rest = text;
  TakePrefix("http://", &rest);
  if (!rest.empty() && rest.back() == '/') {
    rest.pop_back();
  }
  const size_t colon = rest.rfind(':');
  const absl::Status bad = absl::InvalidArgumentError(
      Quoted(text) + "; expected the HTTP address of a server (attnd --http), HOST:PORT");
  if (colon == std::string::npos || colon == 0) {
    return bad;
  }
  HttpTarget target;
  target.host = rest.substr(0, colon);
  if (target.host.front() == '[' && target.host.back() == ']') {
    target.host = target.host.substr(1, target.host.size() - 2);
  }
  const char* last = rest.data() + rest.size();
  const auto [end, error] = std::from_chars(rest.data() + colon + 1, last, target.port);
  if (error != std::errc() || end != last || target.port < 1 || target.port > 65535 ||
      target.host.find('/') != std::string::npos) {
    return bad;
  }
  return target;
}

absl::StatusOr<std::string> FetchMetrics(const HttpTarget& target) {
  httplib::Client client(target.host, target.port);
  client.set_connection_timeout(kConnectSeconds);
  client.set_read_timeout(kReadSeconds);
  client.set_write_timeout(kReadSeconds);
  std::string body;
  const httplib::Result result = client.Get("/metrics", [&body](const char* data, size_t length) {
    body.append(data, length);
    return body.size() <= kMaxBytes;
  });
  if (!result) {
    return absl::UnavailableError(ErrorText(result.error()));
  }
  if (result->status != 200) {
    return absl::UnavailableError("HTTP status " + std::to_string(result->status));
  }
  return body;
}

}  // namespace attnd::attnctl
