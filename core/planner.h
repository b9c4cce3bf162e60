// Bytes and FLOP of a plan: every figure of spec.md's table, and the cost estimates by which
// steps are cut into chunks and the form of MLA is chosen. Pure functions.
#pragma once

#include <cstdint>

#include "core/layer_plan.h"
#include "core/model_config.h"
#include "kernels/dtype.h"

namespace attnd {

// Parameters of one layer.
int64_t MhaParameters(const ModelConfig& config);
int64_t GqaParameters(const ModelConfig& config);
int64_t MlaParameters(const ModelConfig& config);

// Elements cached per token and layer.
int64_t MhaCacheElements(const ModelConfig& config);
int64_t GqaCacheElements(const ModelConfig& config);
int64_t MlaCacheElements(const ModelConfig& config);

// The same in bytes: scales of int8 included, rope keys in the type they are kept in.
int64_t MhaTokenBytes(const ModelConfig& config, DType cache_dtype);
int64_t GqaTokenBytes(const ModelConfig& config, DType cache_dtype);
int64_t MlaTokenBytes(const ModelConfig& config, DType cache_dtype);

// FLOP of one decoded token at a history of n tokens, in one layer (spec.md).
double LocalDecodeFlop(const ModelConfig& config, int64_t n);
double GlobalDecodeFlop(const ModelConfig& config, int64_t n);

// FLOP of appending and answering `rows` rows of one sequence from `position` on, in one layer
// of the plan; the cheaper form on global layers.
double ChunkFlop(const LayerPlan& plan, LayerKind kind, int64_t position, int64_t rows);

// True when `rows` query rows over `keys` keys of a global layer take less time in the absorbed
// form: its FLOP against those of the expanded form, weighted by what each was measured to reach.
bool PreferAbsorbed(const kernels::GlobalShape& shape, int64_t rows, int64_t keys);

}  // namespace attnd
