// The demo's session on the server: a prefill and a hundred tokens through every layer.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace attnd::attnctl {

struct DemoShape {
  int64_t prefill_rows = 0;  // may be 0
  int64_t decode_steps = 0;
  int64_t layers = 0;
  int64_t width = 0;
  std::vector<int64_t> sampled;  // positions whose answers are kept, ascending

  int64_t rows() const { return prefill_rows + decode_steps; }
};

// The demo on this model: min(1,000, longest - 100) rows, then 100 tokens (as many as fit), with
// samples at both ends of each phase and around the window's edge.
DemoShape ShapeFor(const v1::ModelInfo& model);

struct DemoTimes {
  std::vector<double> prefill_ns;          // per layer: the client's time
  std::vector<double> prefill_compute_ns;  // per layer: the server's
  // Of every call: [step * layers + layer].
  std::vector<double> decode_ns;
  std::vector<double> decode_compute_ns;
};

struct DemoRun {
  DemoShape shape;
  DemoTimes times;
  std::vector<std::vector<float>> answers;  // per layer [sampled, width]
  v1::Session session;                      // at the end, before it was closed
};

// Runs it in a session of its own and closes that, also when a call fails.
absl::StatusOr<DemoRun> RunDemo(client::Client& client, const DemoShape& shape, bool progress);

}  // namespace attnd::attnctl
