#include "tests/gpu/report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace attnd::gpu {
namespace {

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3e", value);
  return text;
}

}  // namespace

Report::Report(const std::string& path) {
  if (path.empty()) {
    return;
  }
  file_ = std::fopen(path.c_str(), "w");
  if (file_ == nullptr) {
    std::fprintf(stderr, "%s cannot be written\n", path.c_str());
    std::exit(2);
  }
}

Report::~Report() {
  if (file_ != nullptr) {
    std::fclose(file_);
  }
}

// Names and details are ours: letters, digits and a few signs, nothing to escape.
void Report::Line(const std::string& suite, const std::string& name, bool ok,
                  const std::string& rest) {
  ++checks_;
  failures_ += !ok;
  const std::string line = "{\"suite\": \"" + suite + "\", \"name\": \"" + name +
                           "\", \"ok\": " + (ok ? "true" : "false") + rest + "}\n";
  for (std::FILE* file : {file_, stdout}) {
    if (file != nullptr) {
      std::fputs(line.c_str(), file);
      std::fflush(file);
    }
  }
}

void Report::Near(const std::string& suite, const std::string& name, const std::vector<float>& got,
                  const std::vector<double>& want, double tolerance) {
  if (got.size() != want.size()) {
    Line(suite, name, false, ", \"detail\": \"sizes differ\"");
    return;
  }
  double difference = 0, norm = 0, worst = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) {
      Line(suite, name, false, ", \"detail\": \"not finite at " + std::to_string(i) + "\"");
      return;
    }
    const double off = std::abs(got[i] - want[i]);
    difference += off * off;
    norm += want[i] * want[i];
    worst = std::max(worst, off);
    largest = std::max(largest, std::abs(want[i]));
  }
  const double error = difference == 0 ? 0 : std::sqrt(difference / norm);
  const bool ok = error <= tolerance && worst <= 100 * tolerance * largest;
  Line(suite, name, ok,
       ", \"error\": " + (std::isfinite(error) ? Number(error) : "1e300") +
           ", \"tolerance\": " + Number(tolerance) + ", \"worst\": " + Number(worst));
}

void Report::Holds(const std::string& suite, const std::string& name, bool holds,
                   const std::string& detail) {
  Line(suite, name, holds, detail.empty() ? "" : ", \"detail\": \"" + detail + "\"");
}

void Report::Same(const std::string& suite, const std::string& name, const void* got,
                  size_t got_bytes, const void* want, size_t want_bytes, size_t element) {
  if (got_bytes != want_bytes) {
    Line(suite, name, false, ", \"detail\": \"sizes differ\"");
    return;
  }
  for (size_t i = 0; i < got_bytes; i += element) {
    if (std::memcmp(static_cast<const char*>(got) + i, static_cast<const char*>(want) + i,
                    element) != 0) {
      Line(suite, name, false, ", \"detail\": \"differs at " + std::to_string(i / element) + "\"");
      return;
    }
  }
  Line(suite, name, true, "");
}

}  // namespace attnd::gpu
