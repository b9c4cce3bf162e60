// The metadata `traceparent` of W3C Trace Context.
#include "server/trace_parent.h"

#include <algorithm>

namespace attnd::server {
namespace {

// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
constexpr size_t kLength = 55;

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsId(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

std::optional<TraceParent> ParseTraceParent(std::string_view text) {
  if (text.size() < kLength || text[2] != '-' || text[35] != '-' || text[52] != '-') {
    return std::nullopt;
  }
  const std::string_view version = text.substr(0, 2);
  const std::string_view flags = text.substr(53, 2);
  if (!IsHex(version) || version == "ff" || !IsHex(flags)) {
    return std::nullopt;
  }
  if (text.size() > kLength && (version == "00" || text[kLength] != '-')) {
    return std::nullopt;
  }
  const std::string_view trace_id = text.substr(3, 32);
  const std::string_view span_id = text.substr(36, 16);
  if (!IsId(trace_id) || !IsId(span_id)) {
    return std::nullopt;
  }
  const char low = flags[1];  // its lowest bit is the sampled flag
  const int digit = low <= '9' ? low - '0' : low - 'a' + 10;
  return TraceParent{std::string(trace_id), std::string(span_id), (digit & 1) == 1};
}

}  // namespace attnd::server
