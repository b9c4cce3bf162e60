// Where a model's configuration comes from: the built-in sizes or a YAML file.
#include "core/model_config.h"

#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

namespace attnd {
namespace {

constexpr char kBuiltin[] = "builtin:";
// APEX-1's own files have some 50 lines. The parser takes up to 0.7 s for a hostile megabyte.
constexpr int64_t kMaxYamlBytes = 256 << 10;

// APEX-1's published sizes.
std::vector<ModelConfig> BuiltinModels() {
  ModelConfig tiny;
  tiny.name = "apex1-tiny";
  tiny.d_model = 64;
  tiny.n_layers = 6;
  tiny.n_heads_q = 4;
  tiny.n_heads_kv = 2;
  tiny.d_head = 16;
  tiny.d_kv_compressed = 16;
  tiny.d_q_compressed = 24;
  tiny.d_head_rope = 8;
  tiny.max_seq_len = 256;
  tiny.global_layer_freq = 6;
  tiny.local_window = 64;

  ModelConfig small = tiny;
  small.name = "apex1-small";
  small.d_model = 512;
  small.n_layers = 12;
  small.n_heads_q = 8;
  small.d_head = 64;
  small.d_kv_compressed = 64;
  small.d_q_compressed = 96;
  small.d_head_rope = 32;
  small.max_seq_len = 8192;
  small.local_window = 512;

  ModelConfig medium = small;
  medium.name = "apex1-medium";
  medium.d_model = 2048;
  medium.n_layers = 36;
  medium.n_heads_q = 16;
  medium.n_heads_kv = 4;
  medium.d_head = 128;
  medium.d_kv_compressed = 256;
  medium.d_q_compressed = 384;
  medium.d_head_rope = 64;
  medium.max_seq_len = 65536;
  medium.rope_base = 500000;
  medium.rope_scaling = 4;
  medium.local_window = 2048;

  ModelConfig large = medium;
  large.name = "apex1-large";
  large.d_model = 7168;
  large.n_layers = 72;
  large.n_heads_q = 128;
  large.n_heads_kv = 8;
  large.d_kv_compressed = 512;
  large.d_q_compressed = 768;
  large.max_seq_len = 131072;
  large.rope_base = 1000000;
  large.rope_scaling = 8;
  large.local_window = 8192;
  return {tiny, small, medium, large};
}

absl::StatusOr<ModelConfig> LoadBuiltin(const std::string& source) {
  std::vector<std::string> known;
  for (const ModelConfig& model : BuiltinModels()) {
    known.push_back(kBuiltin + model.name);
    if (known.back() == source) {
      return model;
    }
  }
  return MakeError(Reason::kBadArgument, "model " + Quoted(source) +
                                             " is not known; did you mean '" +
                                             Nearest(source, known) +
                                             "'? (built in: apex1-tiny, -small, -medium, -large)");
}

// "odd" of "dir/odd.yaml"; what would break a word in a log becomes '_'.
std::string Stem(const std::string& path) {
  std::string stem = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  const size_t dot = stem.rfind('.');
  if (dot != std::string::npos && dot > 0) {
    stem.resize(dot);
  }
  for (char& c : stem) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_';
    c = word ? c : '_';
  }
  return stem;
}

}  // namespace

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& source) {
  if (source.rfind(kBuiltin, 0) == 0) {
    return LoadBuiltin(source);
  }
  const absl::StatusOr<std::string> yaml = ReadFile(source, kMaxYamlBytes);
  if (!yaml.ok()) {
    return yaml.status();
  }
  absl::StatusOr<ModelConfig> config = ParseModelConfig(*yaml, source);
  if (config.ok()) {
    config->name = Stem(source);
  }
  return config;
}

}  // namespace attnd
