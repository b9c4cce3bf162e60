// The answers of a layer in float64, with a model's weights: what a test that makes up its own rows
// holds the engine against.
#pragma once

#include <cstdint>
#include <vector>

#include "core/layer_plan.h"
#include "core/weights.h"

namespace attnd {

// [rows][d_model] of a full forward pass of one layer over x [rows][d_model], of which the first
// `prefix` (<= rows) are a bidirectional prefix. Aborts the test's process without the weights.
std::vector<float> ReferenceAnswers(const LayerPlan& plan, WeightSource* weights, int64_t layer,
                                    const std::vector<float>& x, int64_t prefix);

}  // namespace attnd
