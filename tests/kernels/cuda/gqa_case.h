// A ragged problem of grouped-query attention on the emulated device: data in the poisoned pool of
// AttentionCase, runs through the scheduler and the kernels, the answer from the reference.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gqa/gqa.h"
#include "kernels/cuda/schedule.h"
#include "tests/kernels/attention_case.h"

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

class GqaCase : public AttentionCase {
 public:
  GqaCase(const GqaShape& shape, DType dtype, std::vector<Intervals> sequences, uint64_t seed);

  // The data, to be bent by a test before Store(). Rows of all KV heads of a token.
  std::vector<float>& query() { return query_; }
  std::vector<float>& rope_query() { return rope_query_; }
  float* Key(int64_t sequence, int64_t token, int64_t head);
  float* Value(int64_t sequence, int64_t token, int64_t head);
  // Rounds queries, keys and values to the element and writes keys and values into the pool.
  void Store();
  // Moves the pages elsewhere: page i of the pool to `bytes[i]` of `pool`.
  void MovePool(uint8_t* pool, const std::vector<int64_t>& bytes);

  // [rows][heads][value]; what no launch wrote is NaN.
  std::vector<float> Run(Stream& stream, const GqaRun& run = {}) const;
  std::vector<double> Want() const;
  // The output rows of a sequence.
  std::vector<float> Slice(const std::vector<float>& output, int64_t sequence) const;
  int64_t pool_pages() const { return static_cast<int64_t>(pool_.size()) / page_bytes_; }
  int64_t page_bytes() const { return page_bytes_; }

  double scale = 0;

 private:
  GqaParams Params(float* output) const;
  void RunVariant(Stream& stream, const GqaRun& run, GqaVariant variant, GqaParams params,
                  const std::vector<SequenceView>& views) const;
  std::vector<SequenceView> Views(const GqaRun& run) const;

  GqaShape shape_;
  int64_t page_bytes_ = 0;
  const uint8_t* moved_ = nullptr;
  std::vector<float> query_, rope_query_;
  std::vector<std::vector<float>> key_, value_;  // [sequence][token - first][head][width]
  std::vector<int64_t> table_;                   // page tables of all sequences
};

}  // namespace attnd::kernels::cuda
