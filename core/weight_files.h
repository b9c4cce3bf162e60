// Weights in safetensors files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/weights.h"

namespace attnd {

// `path` is a safetensors file, or, if it ends in ".json", an index whose "weight_map" names the
// file of every tensor, relative to the index. A file is mapped once, and only if the plan needs
// a tensor of it.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeightFiles(const std::string& path,
                                                              const LayerPlan& plan);

}  // namespace attnd
