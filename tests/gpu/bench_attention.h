// Attention batches of the benchmark: equal sessions, pages in random order.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/schedule.h"
#include "kernels/params.h"
#include "tests/gpu/batch.h"
#include "tests/gpu/device.h"

namespace attnd::gpu {

// `sessions` of `rows` rows each at the end of `keys` keys, in a pool of pages of `page_bytes`. The
// rows see all that came before, or the last `window`.
class BenchBatch {
 public:
  BenchBatch(Device& device, int64_t sessions, int64_t rows, int64_t keys, int64_t window,
             int64_t page_bytes);

  kernels::cuda::BatchView View() const;
  int64_t rows() const { return lo_.size(); }
  int64_t sessions() const { return views_.size(); }
  int64_t visible() const { return visible_; }  // pairs (row, key) of all rows
  int64_t loaded() const { return loaded_; }    // keys that some row sees

 private:
  int64_t visible_ = 0;
  int64_t loaded_ = 0;
  Buffer<kernels::cuda::SequenceView> views_;
  Buffer<int64_t> lo_, hi_, pages_;
  std::unique_ptr<Buffer<uint8_t>> pool_;
};

// Random bits that are small numbers in any 16-bit type and in e4m3.
void FillWithNumbers(Device& device, void* memory, int64_t bytes);

}  // namespace attnd::gpu
