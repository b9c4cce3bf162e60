// What attnctl bench is asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attnd/v1/attnd.pb.h"
#include "client/attnctl/args.h"
#include "client/attnctl/arrivals.h"

namespace attnd::attnctl {

enum class BenchMode { kDecode, kSteps, kPrefill };

struct BenchOptions {
  BenchMode mode = BenchMode::kDecode;
  std::string mode_name;
  ArrivalOptions arrivals;
  std::string layers;  // "all", or a number
  int64_t duration_ns = 0;
  int64_t warm_up_ns = 0;
  int64_t interval_ns = 0;  // of a row of the CSV file
  int64_t sessions = 0;
  int64_t batch = 0;
  int64_t prompt = 0;
  int64_t concurrency = 0;
  int64_t clients = 0;
  int64_t max_errors = 0;
  std::string csv;  // empty: none

  // Requests that can be under way: each has sessions of its own.
  int64_t lanes() const { return sessions / batch; }
  int64_t end_ns() const { return warm_up_ns + duration_ns; }
};

// The flags of bench beside those of the server.
std::vector<Flag> BenchFlags();

// A UsageError names the flag, the value and what was expected.
absl::StatusOr<BenchOptions> BenchOptionsFrom(const Args& args);

// How the load fits the model.
struct BenchShape {
  std::vector<int64_t> layers;  // of a request, in order
  int64_t width = 0;
  int64_t rows = 0;  // of a request, a layer
  // Rows that a session grows before it is cut back to the prompt, so that a longer run is not a
  // slower one. What every server accepts as a cut: at most its max_rewind.
  int64_t growth = 0;
};

absl::StatusOr<BenchShape> BenchShapeFor(const BenchOptions& options, const v1::ModelInfo& model);

}  // namespace attnd::attnctl
