// Sizes and durations as flags write them.
#include "server/units.h"

#include <array>
#include <cmath>

#include "absl/strings/numbers.h"

namespace attnd::server {
namespace {

struct Unit {
  const char* name;
  int64_t factor;
};

// Largest first: formatting takes the first that divides.
constexpr std::array<Unit, 5> kByteUnits = {{{"TiB", int64_t{1} << 40},
                                             {"GiB", int64_t{1} << 30},
                                             {"MiB", int64_t{1} << 20},
                                             {"KiB", int64_t{1} << 10},
                                             {"B", 1}}};
constexpr std::array<Unit, 6> kTimeUnits = {{{"h", 3'600'000'000'000},
                                             {"m", 60'000'000'000},
                                             {"s", 1'000'000'000},
                                             {"ms", 1'000'000},
                                             {"us", 1'000},
                                             {"ns", 1}}};

// Splits "1.5GiB" into "1.5" and "GiB". nullopt unless it starts with a plain decimal number.
struct NumberAndUnit {
  std::string number;
  std::string unit;
};
std::optional<NumberAndUnit> Split(const std::string& text) {
  const size_t end = text.find_first_not_of("0123456789.");
  NumberAndUnit parts{text.substr(0, end), end == std::string::npos ? "" : text.substr(end)};
  if (parts.number.empty() || parts.number.front() == '.' || parts.number.back() == '.') {
    return std::nullopt;
  }
  return parts;
}

std::optional<int64_t> Scale(const std::string& number, int64_t factor) {
  if (number.find('.') == std::string::npos) {
    int64_t whole = 0;
    int64_t product = 0;
    if (!absl::SimpleAtoi(number, &whole) || __builtin_mul_overflow(whole, factor, &product)) {
      return std::nullopt;
    }
    return product;
  }
  double value = 0;
  if (!absl::SimpleAtod(number, &value)) {
    return std::nullopt;
  }
  value = std::round(value * static_cast<double>(factor));
  if (!(value < 9.2e18)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(value);
}

template <size_t N>
std::string Format(int64_t value, const std::array<Unit, N>& units) {
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.factor == 0) {
      return std::to_string(value / unit.factor) + unit.name;
    }
  }
  return std::string("0") + units.back().name;
}

}  // namespace

std::optional<int64_t> ParseBytes(const std::string& text) {
  const std::optional<NumberAndUnit> parts = Split(text);
  if (!parts.has_value()) {
    return std::nullopt;
  }
  if (parts->unit.empty()) {
    return Scale(parts->number, 1);
  }
  for (const Unit& unit : kByteUnits) {
    if (parts->unit == unit.name) {
      return Scale(parts->number, unit.factor);
    }
  }
  return std::nullopt;
}

std::optional<int64_t> ParseDuration(const std::string& text) {
  const std::optional<NumberAndUnit> parts = Split(text);
  if (!parts.has_value()) {
    return std::nullopt;
  }
  for (const Unit& unit : kTimeUnits) {
    if (parts->unit == unit.name) {
      return Scale(parts->number, unit.factor);
    }
  }
  return std::nullopt;
}

std::string FormatBytes(int64_t bytes) { return Format(bytes, kByteUnits); }
std::string FormatDuration(int64_t nanoseconds) {
  return nanoseconds == 0 ? "0s" : Format(nanoseconds, kTimeUnits);
}

}  // namespace attnd::server
