// A layer of a model, made of the kernels' launchers and matrix products alone: the mathematics of
// core's layers without core, which needs libraries that a machine with a card may not have.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/gpu/device.h"
#include "tests/gpu/golden_data.h"

namespace attnd::gpu {

struct LayerOptions {
  DType cache = DType::kF32;
  DType weights = DType::kF32;  // and matrix products; keys and values that are expanded
  bool expanded = false;        // global layers: decompressed rather than absorbed
};

class LayerRunner {
 public:
  LayerRunner(Device& device, const GoldenModel& model, const GoldenLayer& layer,
              const LayerOptions& options);

  // The outputs of all rows, computed in chunks that end at `ends`, the last being the rows.
  std::vector<float> Run(const GoldenCase& c, const std::vector<int64_t>& ends);
  // Whether tensor cores did the attention.
  bool tuned() const { return tuned_; }

 private:
  struct Chunk;
  struct Weight {
    Buffer<uint8_t> data;  // [groups][out][in]
    int64_t groups, out, in;
  };

  void AddWeight(const std::string& name, int64_t groups, bool transposed);
  // Rows [rows][groups * inner][in] to [rows][groups * inner][out].
  Buffer<float> Project(const Buffer<float>& x, int64_t rows, const std::string& name,
                        int64_t inner = 1);
  Buffer<float> Rotated(Buffer<float> x, const Chunk& chunk, int64_t heads);
  Buffer<float> Local(const Buffer<float>& x, Chunk& chunk);
  Buffer<float> Global(const Buffer<float>& x, Chunk& chunk);
  Buffer<float> AttendLocal(const Buffer<float>& query, Chunk& chunk);
  Buffer<float> AttendAbsorbed(const Buffer<float>& query, const Buffer<float>& rope, Chunk& chunk);
  Buffer<float> AttendExpanded(const Buffer<float>& query, const Buffer<float>& rope, Chunk& chunk);
  // Keys and values of the history, [heads_kv][padded][d_head].
  Buffer<float> Expand(const Buffer<uint8_t>& latents, int64_t padded, const std::string& name);

  Device& device_;
  const GoldenModel& model_;
  const GoldenLayer& layer_;
  const LayerOptions options_;
  std::map<std::string, Weight> weights_;
  bool tuned_ = false;
};

}  // namespace attnd::gpu
