// A command's words and flags, read from the command line.
#include "client/attnctl/args.h"

#include <charconv>

#include "core/text.h"

namespace attnd::attnctl {
namespace {

const Flag* Find(const std::vector<Flag>& flags, const std::string& name) {
  for (const Flag& flag : flags) {
    if (flag.name == name) {
      return &flag;
    }
  }
  return nullptr;
}

absl::Status Unknown(const std::vector<Flag>& flags, const std::string& name) {
  std::string message = "unknown flag --" + Printable(name, 60);
  if (!flags.empty()) {
    std::vector<std::string> known;
    for (const Flag& flag : flags) {
      known.push_back(flag.name);
    }
    message += "; the nearest is --" + Nearest(name, known);
  }
  return absl::InvalidArgumentError(message);
}

template <typename Value>
bool ParseNumber(const std::string& text, Value* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string Range(const Flag& flag) {
  const bool open = flag.max == std::numeric_limits<int64_t>::max();
  const std::string kind = flag.kind == Flag::Kind::kInt ? "a whole number" : "a number";
  return open ? kind + " of at least " + std::to_string(flag.min)
              : kind + " from " + std::to_string(flag.min) + " to " + std::to_string(flag.max);
}

template <typename Value>
bool InRange(const Flag& flag, const std::string& text) {
  Value value = 0;
  return ParseNumber(text, &value) && value >= static_cast<Value>(flag.min) &&
         value <= static_cast<Value>(flag.max);
}

absl::Status CheckValue(const Flag& flag, const std::string& value) {
  if ((flag.kind == Flag::Kind::kInt && !InRange<int64_t>(flag, value)) ||
      (flag.kind == Flag::Kind::kNumber && !InRange<double>(flag, value))) {
    return absl::InvalidArgumentError("--" + flag.name + ": " + Quoted(value) + "; expected " +
                                      Range(flag));
  }
  if (flag.kind == Flag::Kind::kText && value.empty()) {
    return absl::InvalidArgumentError("--" + flag.name + ": empty; expected a value");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Args> Args::Parse(const std::vector<Flag>& flags, size_t max_words,
                                 const std::vector<std::string>& words) {
  Args args;
  for (const Flag& flag : flags) {
    if (!flag.default_value.empty()) {
      args.values_[flag.name] = flag.default_value;
    }
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].rfind("--", 0) != 0) {
      args.words_.push_back(words[i]);
      if (args.words_.size() > max_words) {
        return absl::InvalidArgumentError("unexpected word " + Quoted(words[i]));
      }
      continue;
    }
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(2, equals == std::string::npos ? equals : equals - 2);
    const Flag* flag = Find(flags, name);
    if (flag == nullptr) {
      return Unknown(flags, name);
    }
    const bool inline_value = equals != std::string::npos;
    if (flag->kind == Flag::Kind::kSwitch) {
      if (inline_value) {
        return absl::InvalidArgumentError("--" + name + " takes no value");
      }
      args.values_[name] = "true";
      continue;
    }
    if (!inline_value && i + 1 == words.size()) {
      return absl::InvalidArgumentError("--" + name + " needs a value");
    }
    const std::string value = inline_value ? words[i].substr(equals + 1) : words[++i];
    if (absl::Status status = CheckValue(*flag, value); !status.ok()) {
      return status;
    }
    args.values_[name] = value;
  }
  return args;
}

int64_t Args::Int(const std::string& name) const {
  int64_t value = 0;
  ParseNumber(Text(name), &value);
  return value;
}

double Args::Number(const std::string& name) const {
  double value = 0;
  ParseNumber(Text(name), &value);
  return value;
}

}  // namespace attnd::attnctl
