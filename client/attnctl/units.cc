// Numbers with their units, short.
#include "client/attnctl/units.h"

#include <cmath>
#include <cstdio>

namespace attnd::attnctl {
namespace {

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// Up to two decimals, without trailing zeros: 8, 1.5, 2.25.
std::string Short(double value) {
  std::string text = Format("%.2f", value);
  while (text.back() == '0') {
    text.pop_back();
  }
  if (text.back() == '.') {
    text.pop_back();
  }
  return text;
}

std::string Scaled(double value, double base, const char* const* units, int count) {
  if (!std::isfinite(value)) {
    return "-";
  }
  int unit = 0;
  while (unit + 1 < count && value >= base) {
    value /= base;
    ++unit;
  }
  return Short(value) + " " + units[unit];
}

}  // namespace

std::string Count(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t sign = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > sign + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string Bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return Scaled(bytes, 1024, kUnits, 6);
}

std::string Flop(double flop) {
  static constexpr const char* kUnits[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
  return Scaled(flop, 1000, kUnits, 6);
}

std::string Duration(double ns) {
  if (ns < 1e3) {
    return Format("%.0f ns", ns);
  }
  if (ns < 1e6) {
    return Format("%.1f us", ns / 1e3);
  }
  return ns < 1e9 ? Format("%.2f ms", ns / 1e6) : Format("%.2f s", ns / 1e9);
}

std::string Percent(double ratio) {
  if (!std::isfinite(ratio)) {
    return "-";
  }
  // A second decimal where it is the last (6.25 %), and below 1 %.
  const double hundredths = ratio * 1e4;
  const bool exact = std::abs(hundredths - std::round(hundredths)) < 1e-6;
  return (exact ? Short(ratio * 100) : Format(ratio < 0.01 ? "%.2f" : "%.1f", ratio * 100)) + " %";
}

}  // namespace attnd::attnctl
