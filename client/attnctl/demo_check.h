// The demo's answers against the float64 reference, when the weights can be made again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/attnctl/demo_run.h"
#include "core/model_config.h"

namespace attnd::attnctl {

struct LayerCheck {
  int64_t rows = 0;
  double error = 0;  // ||answer - reference|| / ||reference|| over the layer's rows
  bool passed = false;
};

struct DemoCheck {
  double tolerance = 0;
  std::vector<LayerCheck> layers;

  bool passed() const;
  double worst() const;
};

// The configuration that a server's description amounts to; an error when its layers follow no
// frequency or it is not valid.
absl::StatusOr<ModelConfig> ConfigOf(const v1::ModelInfo& model);

// True when the weights are `random:SEED`, which this machine can make too.
bool CanCheck(const v1::ModelInfo& model);

// 1e-5 when weights and cache are float32, else 1e-2; no single element may be off by more than
// a hundred times that of the layer's largest. NaN never passes.
LayerCheck Compare(const std::vector<float>& answer, const std::vector<double>& reference,
                   int64_t width, double tolerance);

// Computes the sampled rows of every layer and compares.
absl::StatusOr<DemoCheck> CheckDemo(const v1::ModelInfo& model, const DemoRun& run, bool progress);

}  // namespace attnd::attnctl
