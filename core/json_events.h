// The part that our readers of JSON share: depth, the first error, and what is not JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace attnd {

// Base of a reader of JSON events. A derived class handles what it expects and calls Fail() for
// the rest; false from a handler ends the parse.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  // OK, or the first error. The text is checked to be UTF-8 and free of NUL first (a NUL would
  // end it for the parser).
  absl::Status Read(std::string_view text);

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::json::exception& error) override;
  bool binary(nlohmann::json::binary_t& value) override;
  // A depth of 1 is inside the outermost object.
  bool start_object(std::size_t elements) override;
  bool end_object() override;
  bool start_array(std::size_t elements) override;
  bool end_array() override;
  bool null() override { return OnScalar("null"); }
  bool boolean(bool value) override { return OnScalar(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { return OnScalar(std::to_string(value)); }
  bool number_unsigned(uint64_t value) override { return OnNatural(value); }
  bool number_float(double value, const std::string& text) override;
  bool string(std::string& value) override { return OnString(value); }
  bool key(std::string& value) override { return OnKey(value); }

 protected:
  // `what` describes a value of a type that was perhaps not expected, for messages.
  virtual bool OnScalar(const std::string& what) = 0;
  virtual bool OnNatural(uint64_t value) = 0;
  virtual bool OnString(std::string& value) = 0;
  virtual bool OnKey(std::string& name) = 0;
  // Called with the depth that the container has been entered from, or is left to.
  virtual bool OnStart(bool array) = 0;
  virtual bool OnEnd() = 0;

  int64_t depth() const { return depth_; }
  bool Fail(const std::string& message);

 private:
  int64_t depth_ = 0;
  std::string error_;
};

}  // namespace attnd
