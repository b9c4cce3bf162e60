// Reading of Prometheus' text format.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace attnd {

struct Metrics {
  // "name{label=\"value\"}", labels in alphabetical order: its value.
  std::map<std::string, double> samples;
  std::map<std::string, std::string> types;  // by family: "gauge", "counter", "histogram"

  // The sample's value, or a failure of the test and NaN when it is not there.
  double Get(const std::string& sample) const;
  // The sum over all samples of that name.
  double Sum(const std::string& name) const;
  // The names of the labels of a family's samples, "le" left out, in alphabetical order.
  std::vector<std::string> Labels(const std::string& family) const;
};

Metrics ParseMetrics(const std::string& text);

// GET /metrics, parsed.
Metrics Scrape(const std::string& http_address);

}  // namespace attnd
