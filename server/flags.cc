// A table of flags: parsing and printing.
#include "server/flags.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/file.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "server/units.h"

namespace attnd::server {
namespace {

const char* KindName(FlagKind kind) {
  switch (kind) {
    case FlagKind::kText:
      return "TEXT";
    case FlagKind::kList:
      return "TEXT, repeatable";
    case FlagKind::kBool:
      return "BOOL";
    case FlagKind::kInt:
      return "NUMBER";
    case FlagKind::kReal:
      return "NUMBER";
    case FlagKind::kBytes:
      return "BYTES";
    case FlagKind::kDuration:
      return "DURATION";
    case FlagKind::kChoice:
      return "CHOICE";
  }
  return "?";
}

std::string RealText(double value) { return absl::StrFormat("%g", value); }

std::string NumberText(const Flag& flag, double value) {
  switch (flag.kind) {
    case FlagKind::kBytes:
      return FormatBytes(static_cast<int64_t>(value));
    case FlagKind::kDuration:
      return FormatDuration(static_cast<int64_t>(value));
    case FlagKind::kInt:
      return std::to_string(static_cast<int64_t>(value));
    default:
      return RealText(value);
  }
}

std::string ValueText(const Flag& flag) {
  if (const auto* text = std::get_if<std::string*>(&flag.target)) {
    return (**text).empty() && flag.automatic != nullptr ? flag.automatic : **text;
  }
  if (const auto* list = std::get_if<std::vector<std::string>*>(&flag.target)) {
    return absl::StrJoin(**list, ",");
  }
  if (const auto* yes = std::get_if<bool*>(&flag.target)) {
    return **yes ? "true" : "false";
  }
  if (const auto* real = std::get_if<double*>(&flag.target)) {
    return **real == 0 && flag.automatic != nullptr ? flag.automatic : RealText(**real);
  }
  const int64_t number = *std::get<int64_t*>(flag.target);
  return number == 0 && flag.automatic != nullptr ? flag.automatic : NumberText(flag, number);
}

constexpr int64_t kMaxFlagFileBytes = int64_t{1} << 20;

absl::Status Bad(const Flag& flag, const std::string& value, const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag.name, "=", value, ": expected ", expected));
}

absl::Status AssignNumber(const Flag& flag, const std::string& value) {
  const std::string range =
      absl::StrCat(" from ", NumberText(flag, flag.min), " to ", NumberText(flag, flag.max));
  if (flag.kind == FlagKind::kReal) {
    double real = 0;
    if (!absl::SimpleAtod(value, &real) || !(real >= flag.min && real <= flag.max)) {
      return Bad(flag, value, "a number" + range);
    }
    *std::get<double*>(flag.target) = real;
    return absl::OkStatus();
  }
  std::optional<int64_t> number;
  const char* what = "a whole number";
  if (flag.kind == FlagKind::kBytes) {
    number = ParseBytes(value);
    what = "bytes such as 512MiB or 8GiB";
  } else if (flag.kind == FlagKind::kDuration) {
    number = ParseDuration(value);
    what = "a duration such as 1.5s, 10m or 24h";
  } else if (int64_t whole = 0; absl::SimpleAtoi(value, &whole)) {
    number = whole;
  }
  const auto real = static_cast<double>(number.value_or(0));
  if (!number.has_value() || real < flag.min || real > flag.max) {
    return Bad(flag, value, what + range);
  }
  *std::get<int64_t*>(flag.target) = *number;
  return absl::OkStatus();
}

// Wraps `text` to 92 columns, each line indented by six.
std::string Wrapped(const std::string& text) {
  std::string out = "     ";
  size_t column = 5;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (column + 1 + (end - begin) > 98) {
      out += "\n     ";
      column = 5;
    }
    out += ' ' + text.substr(begin, end - begin);
    column += 1 + (end - begin);
    begin = end + 1;
  }
  return out + "\n";
}

}  // namespace

FlagTable::FlagTable(std::vector<Flag> flags) {
  for (Flag& flag : flags) {
    std::string default_text = ValueText(flag);
    rows_.push_back({std::move(flag), std::move(default_text)});
  }
}

absl::Status FlagTable::Parse(const std::vector<std::string>& args) {
  return ParseList(args, false);
}

absl::Status FlagTable::ParseList(const std::vector<std::string>& args, bool from_file) {
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg.rfind("--", 0) != 0 || arg.size() == 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected argument '", arg, "': flags are written --name=value"));
    }
    const size_t equals = arg.find('=');
    const std::string name = arg.substr(2, equals == std::string::npos ? equals : equals - 2);
    const bool has_value = equals != std::string::npos;
    std::string value = has_value ? arg.substr(equals + 1) : "";
    if (name == "flagfile" && from_file) {
      return absl::InvalidArgumentError("--flagfile: a flag file cannot name another");
    }
    Row* row = Find(name);
    if (row == nullptr && !has_value && name.rfind("no", 0) == 0) {
      row = Find(name.substr(2));
      value = "false";
      row = row != nullptr && row->flag.kind == FlagKind::kBool ? row : nullptr;
    } else if (row != nullptr && !has_value && row->flag.kind == FlagKind::kBool) {
      value = "true";
    } else if (row != nullptr && !has_value) {
      if (i + 1 == args.size() || from_file) {
        return absl::InvalidArgumentError(absl::StrCat("--", name, ": expected a value"));
      }
      value = args[++i];
    }
    if (row == nullptr) {
      return Unknown(name);
    }
    absl::Status status = Assign(*row, value);
    if (status.ok() && name == "flagfile") {
      status = ParseFile(value);
    }
    if (!status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status FlagTable::ParseFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxFlagFileBytes);
  if (!text.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--flagfile=", text.status().message()));
  }
  std::istringstream file(*text);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') {
      continue;
    }
    const size_t end = line.find_last_not_of(" \t\r");
    if (absl::Status status = ParseList({line.substr(begin, end - begin + 1)}, true);
        !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

// The default's own name, as the sample configuration writes it.
absl::Status FlagTable::AssignAutomatic(Row* row) {
  if (auto* const* text = std::get_if<std::string*>(&row->flag.target)) {
    (*text)->clear();
  } else if (auto* const* real = std::get_if<double*>(&row->flag.target)) {
    **real = 0;
  } else {
    *std::get<int64_t*>(row->flag.target) = 0;
  }
  row->seen = true;
  return absl::OkStatus();
}

absl::Status FlagTable::Assign(Row& row, const std::string& value) {
  const Flag& flag = row.flag;
  if (flag.automatic != nullptr && value == flag.automatic) {
    return AssignAutomatic(&row);
  }
  switch (flag.kind) {
    case FlagKind::kText:
      // A path that a script left empty must not turn anything off unnoticed.
      if (flag.automatic != nullptr && value.empty()) {
        return Bad(flag, value, absl::StrCat("a value, or ", flag.automatic));
      }
      *std::get<std::string*>(flag.target) = value;
      break;
    case FlagKind::kList: {
      auto& list = *std::get<std::vector<std::string>*>(flag.target);
      if (!row.seen) {
        list.clear();
      }
      list.push_back(value);
      break;
    }
    case FlagKind::kBool:
      if (value != "true" && value != "false" && value != "1" && value != "0") {
        return Bad(flag, value, "true or false");
      }
      *std::get<bool*>(flag.target) = value == "true" || value == "1";
      break;
    case FlagKind::kChoice:
      if (std::find(flag.choices.begin(), flag.choices.end(), value) == flag.choices.end()) {
        return Bad(flag, value, "one of " + absl::StrJoin(flag.choices, ", "));
      }
      *std::get<std::string*>(flag.target) = value;
      break;
    default:
      if (absl::Status status = AssignNumber(flag, value); !status.ok()) {
        return status;
      }
  }
  row.seen = true;
  return absl::OkStatus();
}

FlagTable::Row* FlagTable::Find(const std::string& name) {
  for (Row& row : rows_) {
    if (name == row.flag.name) {
      return &row;
    }
  }
  return nullptr;
}

absl::Status FlagTable::Unknown(const std::string& name) const {
  std::vector<std::string> known;
  for (const Row& row : rows_) {
    known.emplace_back(row.flag.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown flag --", Printable(name, 60),
                                                 "; the nearest known one is --",
                                                 Nearest(name, known)));
}

std::string FlagTable::Help() const {
  std::string out;
  const char* group = "";
  for (const Row& row : rows_) {
    if (std::string(group) != row.flag.group) {
      group = row.flag.group;
      absl::StrAppend(&out, "\n", group, ":\n");
    }
    const std::string kind =
        row.flag.choices.empty() ? KindName(row.flag.kind) : absl::StrJoin(row.flag.choices, "|");
    absl::StrAppend(&out, "  --", row.flag.name, " (", kind);
    if (row.flag.in_config) {
      absl::StrAppend(&out, "; default ", row.default_text.empty() ? "none" : row.default_text);
    }
    absl::StrAppend(&out, ")\n", Wrapped(row.flag.help));
  }
  return out;
}

std::string FlagTable::Json() const {
  nlohmann::json list = nlohmann::json::array();
  for (const Row& row : rows_) {
    list.push_back({{"name", row.flag.name},
                    {"group", row.flag.group},
                    {"kind", KindName(row.flag.kind)},
                    {"default", row.default_text},
                    {"setting", row.flag.in_config},
                    {"help", row.flag.help}});
  }
  return list.dump(2);
}

std::vector<std::pair<std::string, std::string>> FlagTable::Values() const {
  std::vector<std::pair<std::string, std::string>> values;
  for (const Row& row : rows_) {
    if (row.flag.in_config) {
      values.emplace_back(row.flag.name, ValueText(row.flag));
    }
  }
  return values;
}

std::vector<ShownSetting> FlagTable::Shown() const {
  std::vector<ShownSetting> settings;
  for (const Row& row : rows_) {
    if (!row.flag.in_config) {
      continue;
    }
    ShownSetting& setting = settings.emplace_back();
    setting.name = row.flag.name;
    setting.value = ValueText(row.flag);
    setting.given = row.seen;
    if (std::string_view(row.flag.group) == kSecurityGroup) {
      setting.value = setting.value == row.default_text ? "off" : "set";
    }
  }
  return settings;
}

}  // namespace attnd::server
