// The metadata `traceparent` of W3C Trace Context: which trace a request belongs to.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attnd::server {

struct TraceParent {
  std::string trace_id;  // 32 lower-case hexadecimal digits
  std::string span_id;   // 16, of the caller's span
  bool sampled = false;  // the caller records this trace
};

// nullopt for whatever is not valid by the recommendation. Of a later version than 00 the part
// that 00 has is read.
std::optional<TraceParent> ParseTraceParent(std::string_view text);

}  // namespace attnd::server
