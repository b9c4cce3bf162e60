// Prometheus' text exposition format, as /metrics has it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace attnd::attnctl {

struct MetricSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;

  // The label's value; empty when it is not there.
  std::string Label(const std::string& label) const;
};

// All samples in order; comments and times are left out. INVALID_ARGUMENT names the line and what
// was expected there.
absl::StatusOr<std::vector<MetricSample>> ParseMetricsText(const std::string& text);

}  // namespace attnd::attnctl
