// What ragged attention problems on the emulated device share: queries, pages that can be moved,
// sequences as the device sees them, and room for splits.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/schedule.h"
#include "tests/kernels/attention_case.h"

namespace attnd::kernels::cuda {

class CudaCase : public AttentionCase {
 public:
  // Before the derived case's Store(): to be bent by a test.
  std::vector<float>& query() { return query_; }
  std::vector<float>& rope_query() { return rope_query_; }
  // Moves the pages elsewhere: page i of the pool to `bytes[i]` of `pool`.
  void MovePool(uint8_t* pool, const std::vector<int64_t>& bytes);
  int64_t pool_pages() const { return static_cast<int64_t>(pool_.size()) / page_bytes_; }
  int64_t page_bytes() const { return page_bytes_; }

  double scale = 0;  // of scores

 protected:
  CudaCase(DType dtype, std::vector<Intervals> sequences, uint64_t seed, int64_t page_bytes)
      : AttentionCase(dtype, std::move(sequences), seed), page_bytes_(page_bytes) {}

  // The page tables of all sequences, one after the other: once the pool is filled.
  void MakeTable();
  // Without sequences.
  BatchView Rows() const;
  // The sequences `only`, in that order; all when it is empty.
  std::vector<SequenceView> Views(const std::vector<int32_t>& only) const;
  // The rows of a sequence in an output of rows of `width`.
  std::vector<float> RowsOfSequence(const std::vector<float>& output, int64_t sequence,
                                    int64_t width) const;

  int64_t page_bytes_ = 0;
  std::vector<float> query_, rope_query_;

 private:
  const uint8_t* moved_ = nullptr;
  std::vector<int64_t> table_;
};

struct SplitOptions {
  int32_t split_keys = kOneSplit;  // 0: chosen by the scheduler
  int32_t max_work = 512;          // partials that there are
  int32_t blocks = 3;
};

// Splits of sequences, scheduled when made; partials that no kernel wrote are NaN.
class Splits {
 public:
  // `partial_floats` of a tile. `views` outlive it.
  Splits(Stream& stream, const std::vector<SequenceView>& views, const TileShape& tiles,
         int64_t partial_floats, const SplitOptions& options);

  // For kernels launched with the same views.
  Schedule schedule();
  int64_t work() const { return work_begin_.back(); }
  int32_t split_keys() const { return split_keys_; }
  // Whether kernels left the counters at zero.
  bool AllArrived() const;

 private:
  std::vector<int64_t> work_begin_;
  int32_t split_keys_ = -1;
  std::vector<int32_t> arrivals_;
  std::vector<float> partial_;
};

}  // namespace attnd::kernels::cuda
