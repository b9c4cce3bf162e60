// A ragged problem of absorbed multi-head latent attention on the emulated device: data in the
// poisoned pool of AttentionCase, runs through the scheduler and the kernel, the answer from the
// reference.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/latent/latent.h"
#include "tests/kernels/cuda/cuda_case.h"

namespace attnd::kernels::cuda {

struct LatentShape {
  int32_t heads_kv = 1;
  int32_t group = 1;
  int32_t latent = 0;
  int32_t rope = 0;

  int32_t heads() const { return heads_kv * group; }
};

struct LatentRun {
  std::vector<int32_t> only;       // sequences in this order; empty: all
  int32_t split_keys = kOneSplit;  // 0: chosen by the scheduler
  int32_t max_work = 512;          // partials that there are
  int32_t blocks = 3;
  int architecture = 90;
};

class LatentCase : public CudaCase {
 public:
  LatentCase(const LatentShape& shape, DType dtype, std::vector<Intervals> sequences,
             uint64_t seed);

  // The data, to be bent by a test before Store(). Latents of token t of sequence s, and the rope
  // keys of all KV heads.
  float* Latent(int64_t sequence, int64_t token);
  float* RopeKey(int64_t sequence, int64_t token);
  // Rounds queries to the tensor cores' element and the cached rows to what is cached; writes these
  // into the pool.
  void Store();

  // [rows][heads][latent]; what the launch did not write is NaN.
  std::vector<float> Run(Stream& stream, const LatentRun& run = {}) const;
  LatentParams Params(float* output) const;
  // By the latents as they are stored, or as they were before.
  std::vector<double> Want(bool stored = true) const;
  // The output rows of a sequence.
  std::vector<float> Slice(const std::vector<float>& output, int64_t sequence) const {
    return RowsOfSequence(output, sequence, int64_t{shape_.heads()} * shape_.latent);
  }
  DType element() const { return dtype_ == DType::kF16 ? DType::kF16 : DType::kBF16; }

 private:
  LatentShape shape_;
  GlobalShape global_;
  std::vector<std::vector<float>> latent_, rope_key_;  // [sequence][token - first][width]
  std::vector<std::vector<float>> stored_;             // latents
};

// What a block of this architecture may have.
int64_t SharedLimit(int architecture);

}  // namespace attnd::kernels::cuda
