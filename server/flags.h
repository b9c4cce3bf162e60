// A table of flags: one row feeds parsing, --help, the start print and the sample configuration.
//
// Accepted: --name=value, --name value, --name and --noname for booleans, --flagfile=FILE with one
// --name=value a line and # comments. What is not in the table is refused.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace attnd::server {

enum class FlagKind : uint8_t {
  kText,
  kList,  // repeatable; the first use replaces the default
  kBool,
  kInt,
  kReal,
  kBytes,     // "8GiB" or plain bytes
  kDuration,  // "10m", in nanoseconds
  kChoice,    // one of `choices`
};

struct Flag {
  const char* group;
  const char* name;
  FlagKind kind;
  // Where the value goes; of the kind's type: text and choices std::string, numbers int64_t,
  // kReal double. What it points to holds the default.
  std::variant<std::string*, std::vector<std::string>*, bool*, int64_t*, double*> target;
  const char* help;  // what it does and why the default is what it is
  double min = 0;    // of numbers, inclusive
  double max = 0;
  std::vector<std::string> choices = {};
  // How an unset value is written: the default is found out at start.
  const char* automatic = nullptr;
  bool in_config = true;  // false for commands such as --help
};

// Flags of this group say where secrets are.
inline constexpr char kSecurityGroup[] = "Security";

// A setting as anybody may see it.
struct ShownSetting {
  std::string name;
  std::string value;   // of security, whether it is set and no more: "set" or "off"
  bool given = false;  // by the command line or a file
};

class FlagTable {
 public:
  explicit FlagTable(std::vector<Flag> flags);

  // Arguments without the program's name. The error is one line and names the flag, the value
  // and what was expected; for an unknown flag, the nearest known one.
  absl::Status Parse(const std::vector<std::string>& args);

  std::string Help() const;
  // [{"name", "group", "kind", "default", "help"}], for the check that the documents agree.
  std::string Json() const;
  // Name and present value of every setting, in the table's order.
  std::vector<std::pair<std::string, std::string>> Values() const;
  // Of every setting, for the status page.
  std::vector<ShownSetting> Shown() const;

 private:
  struct Row {
    Flag flag;
    std::string default_text;
    bool seen = false;
  };
  absl::Status ParseList(const std::vector<std::string>& args, bool from_file);
  absl::Status ParseFile(const std::string& path);
  static absl::Status AssignAutomatic(Row* row);
  absl::Status Assign(Row& row, const std::string& value);
  Row* Find(const std::string& name);
  absl::Status Unknown(const std::string& name) const;

  std::vector<Row> rows_;
};

}  // namespace attnd::server
