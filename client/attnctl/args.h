// Command lines of attnctl: declared as data, checked once, read without further errors.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnd::attnctl {

struct Flag {
  enum class Kind { kText, kInt, kNumber, kSwitch };

  std::string name;  // without dashes
  Kind kind = Kind::kText;
  std::string default_value;  // "" : none
  std::string help;
  int64_t min = 0;  // of a kInt or kNumber
  int64_t max = std::numeric_limits<int64_t>::max();
};

class Args {
 public:
  // `words` as --name value, --name=value, --switch, and plain words. Errors name the flag, the
  // value and what was expected; for a misspelt flag, the nearest known one.
  static absl::StatusOr<Args> Parse(const std::vector<Flag>& flags, size_t max_words,
                                    const std::vector<std::string>& words);

  // True when the flag was given or has a default.
  bool Has(const std::string& name) const { return values_.count(name) > 0; }
  bool Switch(const std::string& name) const { return Has(name); }
  const std::string& Text(const std::string& name) const { return values_.at(name); }
  int64_t Int(const std::string& name) const;
  double Number(const std::string& name) const;
  const std::vector<std::string>& words() const { return words_; }

 private:
  std::map<std::string, std::string> values_;
  std::vector<std::string> words_;
};

}  // namespace attnd::attnctl
