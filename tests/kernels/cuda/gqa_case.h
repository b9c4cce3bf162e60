// A ragged problem of grouped-query attention on the emulated device: data in the poisoned pool of
// AttentionCase, runs through the scheduler and the kernels, the answer from the reference.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/gqa/gqa.h"
#include "tests/kernels/cuda/cuda_case.h"

namespace attnd::kernels::cuda {

struct GqaShape {
  int32_t heads_kv = 1;
  int32_t group = 1;
  int32_t content = 0;
  int32_t rope = 0;
  int32_t value = 0;

  int32_t key() const { return content + rope; }
  int32_t heads() const { return heads_kv * group; }
};

struct GqaRun {
  std::vector<int32_t> only;            // sequences; empty: all
  int32_t split_keys = kOneSplit;       // 0: chosen by the scheduler
  int32_t max_work = 4096;              // partials that there are
  int grid = 3;                         // blocks
  const GqaVariant* variant = nullptr;  // null: each sequence by its own rows
  std::vector<int64_t> carry;           // ends of blocks of the history, the last one of them all
};

class GqaCase : public CudaCase {
 public:
  GqaCase(const GqaShape& shape, DType dtype, std::vector<Intervals> sequences, uint64_t seed);

  // The data, to be bent by a test before Store().
  float* Key(int64_t sequence, int64_t token, int64_t head);
  float* Value(int64_t sequence, int64_t token, int64_t head);
  // Rounds queries, keys and values to the element and writes keys and values into the pool.
  void Store();

  // [rows][heads][value]; what no launch wrote is NaN.
  std::vector<float> Run(Stream& stream, const GqaRun& run = {}) const;
  std::vector<double> Want() const;
  // The output rows of a sequence.
  std::vector<float> Slice(const std::vector<float>& output, int64_t sequence) const {
    return RowsOfSequence(output, sequence, int64_t{shape_.heads()} * shape_.value);
  }

 private:
  GqaParams Params(float* output) const;
  void RunVariant(Stream& stream, const GqaRun& run, GqaVariant variant, GqaParams params,
                  const std::vector<SequenceView>& views) const;

  GqaShape shape_;
  std::vector<std::vector<float>> key_, value_;  // [sequence][token - first][head][width]
};

}  // namespace attnd::kernels::cuda
