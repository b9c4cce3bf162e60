// Reading of Prometheus' text format.
#include "tests/integration/metrics_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>
#include <sstream>

#include "tests/integration/http_get.h"

namespace attnd {
namespace {

// name{b="2",a="1"} becomes name{a="1",b="2"}. Label values here hold no comma.
std::string SortedLabels(const std::string& sample) {
  const size_t open = sample.find('{');
  if (open == std::string::npos) {
    return sample;
  }
  std::set<std::string> labels;
  std::istringstream list(sample.substr(open + 1, sample.size() - open - 2));
  for (std::string label; std::getline(list, label, ',');) {
    if (!label.empty()) {
      labels.insert(label);
    }
  }
  std::string sorted = sample.substr(0, open + 1);
  for (const std::string& label : labels) {
    sorted += (sorted.back() == '{' ? "" : ",") + label;
  }
  return sorted + "}";
}

bool IsOf(const std::string& sample, const std::string& name) {
  return sample.rfind(name, 0) == 0 && (sample.size() == name.size() || sample[name.size()] == '{');
}

}  // namespace

double Metrics::Get(const std::string& sample) const {
  const auto found = samples.find(sample);
  if (found == samples.end()) {
    ADD_FAILURE() << "there is no sample " << sample;
    return std::nan("");
  }
  return found->second;
}

double Metrics::Sum(const std::string& name) const {
  double sum = 0;
  for (const auto& [sample, value] : samples) {
    sum += IsOf(sample, name) ? value : 0;
  }
  return sum;
}

std::vector<std::string> Metrics::Labels(const std::string& family) const {
  std::set<std::string> names;
  for (const auto& entry : samples) {
    const std::string& sample = entry.first;
    const size_t open = sample.find('{');
    const bool histogram = IsOf(sample, family + "_bucket");
    if ((!histogram && !IsOf(sample, family)) || open == std::string::npos) {
      continue;
    }
    std::istringstream list(sample.substr(open + 1));
    for (std::string label; std::getline(list, label, ',');) {
      names.insert(label.substr(0, label.find('=')));
    }
  }
  names.erase("le");
  return {names.begin(), names.end()};
}

Metrics ParseMetrics(const std::string& text) {
  Metrics metrics;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, second, third, fourth;
    words >> first >> second >> third >> fourth;
    if (first == "#") {
      if (second == "TYPE") {
        metrics.types[third] = fourth;
      }
      continue;
    }
    const size_t space = line.rfind(' ');
    if (space != std::string::npos) {
      metrics.samples[SortedLabels(line.substr(0, space))] =
          std::strtod(line.c_str() + space + 1, nullptr);
    }
  }
  return metrics;
}

Metrics Scrape(const std::string& http_address) {
  const HttpAnswer answer = HttpGet(http_address, "/metrics");
  EXPECT_EQ(answer.status, 200);
  return ParseMetrics(answer.body);
}

}  // namespace attnd
