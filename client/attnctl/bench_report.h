// What attnctl bench says: a table, JSON, a CSV file, and a line while it runs.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "attnd/v1/attnd.pb.h"
#include "client/attnctl/bench_options.h"
#include "client/attnctl/load_record.h"

namespace attnd::attnctl {

struct BenchReport {
  BenchOptions options;
  BenchShape shape;
  std::string target;
  std::string model;
  std::string device;
  int64_t end_ns = 0;  // earlier than the options' when interrupted
  LoadResult result;

  double requests_per_second() const;
  // Rows of one layer, times the layers of a request.
  double rows_per_second() const;
};

std::string BenchText(const BenchReport& report);
std::string BenchJson(const BenchReport& report);
// A header and a row for each interval in which requests were due.
void WriteBenchCsv(const BenchReport& report, std::ostream* out);
// "3.2 of 11 s, 99.8/s, p50 1.20 ms, p99 3.44 ms, 0 failed".
std::string BenchProgress(const BenchOptions& options, int64_t now_ns, const LoadResult& so_far);

}  // namespace attnd::attnctl
