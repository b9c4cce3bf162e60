// Prometheus' text format, line by line.
#include "client/attnctl/metrics_text.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "core/text.h"

namespace attnd::attnctl {
namespace {

constexpr char kBlanks[] = " \t\r";

bool InName(char c, bool first) {
  return c == '_' || c == ':' || absl::ascii_isalpha(static_cast<unsigned char>(c)) ||
         (!first && absl::ascii_isdigit(static_cast<unsigned char>(c)));
}

// Reads one line from left to right. What fails says what it had expected.
class LineReader {
 public:
  explicit LineReader(const std::string& line) : line_(line) { SkipBlanks(); }

  bool AtEnd() const { return at_ == line_.size(); }
  bool AtComment() const { return !AtEnd() && line_[at_] == '#'; }

  absl::Status Sample(MetricSample* sample) {
    if (!Name(&sample->name)) {
      return Expected("a metric's name");
    }
    SkipBlanks();
    if (Take('{')) {
      if (absl::Status status = Labels(&sample->labels); !status.ok()) {
        return status;
      }
    }
    if (!Number(&sample->value)) {
      return Expected("a number");
    }
    double time = 0;
    return AtEnd() || (Number(&time) && AtEnd()) ? absl::OkStatus()
                                                 : Expected("a time or the line's end");
  }

 private:
  absl::Status Labels(std::map<std::string, std::string>* labels) {
    for (SkipBlanks(); !Take('}'); SkipBlanks()) {
      std::string name, value;
      if (!Name(&name)) {
        return Expected("a label's name or '}'");
      }
      SkipBlanks();
      if (!Take('=')) {
        return Expected("'='");
      }
      SkipBlanks();
      if (!Quoted(&value)) {
        return Expected("a label's value in double quotes");
      }
      (*labels)[name] = value;
      SkipBlanks();
      if (!Take(',') && !(at_ < line_.size() && line_[at_] == '}')) {
        return Expected("',' or '}'");
      }
    }
    return absl::OkStatus();
  }

  bool Name(std::string* name) {
    while (at_ < line_.size() && InName(line_[at_], name->empty())) {
      *name += line_[at_++];
    }
    return !name->empty();
  }

  // With its escapes: \\, \" and \n.
  bool Quoted(std::string* value) {
    if (!Take('"')) {
      return false;
    }
    while (at_ < line_.size() && line_[at_] != '"') {
      char c = line_[at_++];
      if (c == '\\' && at_ < line_.size()) {
        c = line_[at_++];
        c = c == 'n' ? '\n' : c;
      }
      *value += c;
    }
    return Take('"');
  }

  // Also +Inf, -Inf and NaN.
  bool Number(double* value) {
    SkipBlanks();
    const char* begin = line_.c_str() + at_;
    char* end = nullptr;
    *value = std::strtod(begin, &end);
    const bool whole = end != begin && (*end == '\0' || std::strchr(kBlanks, *end) != nullptr);
    at_ += static_cast<size_t>(end - begin);
    SkipBlanks();
    return whole;
  }

  bool Take(char c) {
    const bool there = at_ < line_.size() && line_[at_] == c;
    at_ += there ? 1 : 0;
    return there;
  }

  void SkipBlanks() { at_ = std::min(line_.find_first_not_of(kBlanks, at_), line_.size()); }

  absl::Status Expected(const std::string& what) const {
    return absl::InvalidArgumentError("expected " + what + " at byte " + std::to_string(at_ + 1) +
                                      " of '" + Printable(line_, 100) + "'");
  }

  const std::string& line_;
  size_t at_ = 0;
};

}  // namespace

std::string MetricSample::Label(const std::string& label) const {
  const auto found = labels.find(label);
  return found == labels.end() ? "" : found->second;
}

absl::StatusOr<std::vector<MetricSample>> ParseMetricsText(const std::string& text) {
  std::vector<MetricSample> samples;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    LineReader reader(line);
    if (reader.AtEnd() || reader.AtComment()) {
      continue;
    }
    MetricSample sample;
    if (absl::Status status = reader.Sample(&sample); !status.ok()) {
      return absl::InvalidArgumentError("line " + std::to_string(number) + ": " +
                                        std::string(status.message()));
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace attnd::attnctl
