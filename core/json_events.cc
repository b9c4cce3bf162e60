// What every reader of JSON does alike.
#include "core/json_events.h"

#include "core/error.h"
#include "core/text.h"

namespace attnd {

absl::Status JsonEvents::Read(std::string_view text) {
  if (const size_t bad = FirstInvalidUtf8(text); bad < text.size()) {
    Fail("is not UTF-8 at byte " + std::to_string(bad));
  } else if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    Fail("has a NUL at byte " + std::to_string(nul) + "; expected JSON");
  } else if (!nlohmann::json::sax_parse(text.begin(), text.end(), this) && error_.empty()) {
    Fail("is not JSON");
  }
  return error_.empty() ? absl::OkStatus() : MakeError(Reason::kBadArgument, error_);
}

bool JsonEvents::Fail(const std::string& message) {
  if (error_.empty()) {
    error_ = message;
  }
  return false;
}

bool JsonEvents::parse_error(std::size_t position, const std::string& /*last_token*/,
                             const nlohmann::json::exception& /*error*/) {
  return Fail("is not JSON at byte " + std::to_string(position));
}

bool JsonEvents::binary(nlohmann::json::binary_t& /*value*/) { return Fail("is not JSON"); }

bool JsonEvents::start_object(std::size_t /*elements*/) {
  const bool go_on = OnStart(/*array=*/false);
  ++depth_;
  return go_on;
}

bool JsonEvents::end_object() {
  --depth_;
  return OnEnd();
}

bool JsonEvents::start_array(std::size_t /*elements*/) {
  const bool go_on = OnStart(/*array=*/true);
  ++depth_;
  return go_on;
}

bool JsonEvents::end_array() {
  --depth_;
  return OnEnd();
}

bool JsonEvents::number_float(double /*value*/, const std::string& text) { return OnScalar(text); }

}  // namespace attnd
