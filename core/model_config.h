// A model's attention, as APEX-1's YAML describes it, checked.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace attnd {

// Keys of `model:` and `attention:`; names of the fields are the keys (spec.md, Symbols).
struct ModelConfig {
  std::string name;  // file stem, or "apex1-small"
  int64_t d_model = 0;
  int64_t n_layers = 0;
  int64_t n_heads_q = 0;
  int64_t n_heads_kv = 0;
  int64_t d_head = 0;
  int64_t d_kv_compressed = 0;
  int64_t d_q_compressed = 0;
  int64_t d_head_rope = 0;
  int64_t max_seq_len = 0;
  double rope_base = 10000.0;
  double rope_scaling = 1.0;
  bool rope_attn_factor = false;
  int64_t global_layer_freq = 0;
  int64_t local_window = 0;
};

// `source` is "builtin:apex1-tiny|small|medium|large" or a path to a YAML file. Errors are one
// line and name the file, the key and what was expected; an unknown key, the nearest known one.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& source);

// The same for the text of a YAML file; `origin` names it in errors.
absl::StatusOr<ModelConfig> ParseModelConfig(const std::string& yaml, const std::string& origin);

// All of spec.md's conditions, and bounds that keep every product of sizes within int64
// (max_seq_len <= 2^24 among them). OK, or the first that does not hold.
absl::Status ValidateModelConfig(const ModelConfig& config, const std::string& origin);

}  // namespace attnd
