// The conditions on a configuration, each with the value that broke it.
#include "absl/strings/str_format.h"
#include "core/file.h"
#include "core/model_config.h"

namespace attnd {
namespace {

// With these, d * (heads * width) is at most 2^42 and the bytes of all weights at most 2^60; the
// cache of one session at max_seq_len at most 2^24 * 2^23 * 2^12 * 4 = 2^61.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxHeadWidth = int64_t{1} << 14;  // two tables of angles: 1 GiB at the most
constexpr int64_t kMaxHeads = int64_t{1} << 16;
constexpr int64_t kMaxLayers = int64_t{1} << 12;
constexpr int64_t kMaxPositions = int64_t{1} << 24;
constexpr int64_t kMaxWindow = int64_t{1} << 31;
constexpr int64_t kMaxRowWidth = int64_t{1} << 22;  // heads * width
constexpr double kMaxRopeBase = 1e12;
constexpr double kMaxRopeScaling = 1e6;

struct IntLimit {
  const char* key;
  int64_t ModelConfig::*field;
  int64_t max;
};
constexpr IntLimit kIntLimits[] = {
    {"model.d_model", &ModelConfig::d_model, kMaxWidth},
    {"model.n_layers", &ModelConfig::n_layers, kMaxLayers},
    {"model.n_heads_q", &ModelConfig::n_heads_q, kMaxHeads},
    {"model.n_heads_kv", &ModelConfig::n_heads_kv, kMaxHeads},
    {"model.d_head", &ModelConfig::d_head, kMaxHeadWidth},
    {"model.d_kv_compressed", &ModelConfig::d_kv_compressed, kMaxWidth},
    {"model.d_q_compressed", &ModelConfig::d_q_compressed, kMaxWidth},
    {"model.d_head_rope", &ModelConfig::d_head_rope, kMaxHeadWidth},
    {"model.max_seq_len", &ModelConfig::max_seq_len, kMaxPositions},
    {"attention.global_layer_freq", &ModelConfig::global_layer_freq, kMaxWindow},
    {"attention.local_window", &ModelConfig::local_window, kMaxWindow},
};

struct DoubleLimit {
  const char* key;
  double ModelConfig::*field;
  double max;
};
constexpr DoubleLimit kDoubleLimits[] = {
    {"model.rope_base", &ModelConfig::rope_base, kMaxRopeBase},
    {"model.rope_scaling", &ModelConfig::rope_scaling, kMaxRopeScaling},
};

absl::Status CheckRanges(const ModelConfig& config, const std::string& origin) {
  for (const IntLimit& limit : kIntLimits) {
    const int64_t value = config.*limit.field;
    if (value < 1 || value > limit.max) {
      return FileError(origin,
                       absl::StrFormat("%s is %d; expected 1 to %d", limit.key, value, limit.max));
    }
  }
  for (const DoubleLimit& limit : kDoubleLimits) {
    const double value = config.*limit.field;
    if (!(value >= 1 && value <= limit.max)) {  // NaN included
      return FileError(origin,
                       absl::StrFormat("%s is %g; expected 1 to %g", limit.key, value, limit.max));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRowWidth(const char* key, int64_t heads, int64_t width,
                           const std::string& origin) {
  if (heads * width > kMaxRowWidth) {
    return FileError(origin, absl::StrFormat("%s is %d with model.n_heads_q %d; expected a product "
                                             "of at most %d",
                                             key, width, heads, kMaxRowWidth));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateModelConfig(const ModelConfig& config, const std::string& origin) {
  if (absl::Status status = CheckRanges(config, origin); !status.ok()) {
    return status;
  }
  if (config.n_heads_q % config.n_heads_kv != 0) {
    return FileError(origin, absl::StrFormat("model.n_heads_q is %d; expected a multiple of "
                                             "model.n_heads_kv, which is %d",
                                             config.n_heads_q, config.n_heads_kv));
  }
  if (config.d_head % 2 != 0) {
    return FileError(origin,
                     absl::StrFormat("model.d_head is %d; expected an even number", config.d_head));
  }
  if (config.d_head_rope % 2 != 0) {
    return FileError(origin, absl::StrFormat("model.d_head_rope is %d; expected an even number",
                                             config.d_head_rope));
  }
  const struct {
    const char* key;
    int64_t width;
  } widths[] = {{"model.d_head", config.d_head},
                {"model.d_head_rope", config.d_head_rope},
                {"model.d_kv_compressed", config.d_kv_compressed}};
  for (const auto& row : widths) {
    if (absl::Status status = CheckRowWidth(row.key, config.n_heads_q, row.width, origin);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace attnd
