// Ragged batches in the device's memory, as attention kernels take them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/schedule.h"
#include "kernels/reference/attention.h"
#include "tests/gpu/device.h"
#include "tests/gpu/random.h"

namespace attnd::gpu {

using kernels::ReferenceInterval;
using kernels::cuda::BatchView;
using kernels::cuda::Schedule;
using kernels::cuda::TileShape;

// What the rows of a sequence see.
using Intervals = std::vector<ReferenceInterval>;

// Rows [begin, end) of a session: ReferenceVisible() of each.
Intervals RowsOf(int64_t begin, int64_t end, int64_t prefix, int64_t window);

// Pages lie in the pool in random order; what no row sees, whole pages of the table too, is poison:
// bytes of 0xff in the pool, an offset far beyond it in the table.
class RaggedBatch {
 public:
  RaggedBatch(Device& device, std::vector<Intervals> sequences, int64_t page_bytes, Random& random);

  int64_t rows() const { return static_cast<int64_t>(lo_.size()); }
  int64_t sequences() const { return static_cast<int64_t>(intervals_.size()); }
  int64_t first_token(int64_t sequence) const { return views_[Index(sequence)].key_begin; }
  int64_t tokens(int64_t sequence) const {
    return views_[Index(sequence)].key_end - first_token(sequence);
  }
  int64_t SequenceOf(int64_t row) const;
  // Work items of a schedule that splits as finely as any: room for all.
  int64_t MostWork(const TileShape& tiles) const;
  // Within the sequence's tokens from first_token().
  ReferenceInterval Sees(int64_t row) const;
  bool SeesAny(int64_t sequence, int64_t token) const;

  // A page on the host; what is written there counts from Upload() on.
  uint8_t* Page(int64_t sequence, int64_t token);
  int64_t PageOffset(int64_t sequence, int64_t token) const;
  uint8_t* DevicePool() const { return device_pool_.data(); }
  void Upload();

  // Of all sequences, or of one alone.
  BatchView View(int64_t only = -1) const;

 private:
  static size_t Index(int64_t i) { return static_cast<size_t>(i); }

  std::vector<Intervals> intervals_;
  std::vector<kernels::cuda::SequenceView> views_;
  std::vector<int64_t> lo_, hi_, pages_;
  std::vector<uint8_t> pool_;
  Buffer<kernels::cuda::SequenceView> device_views_;
  Buffer<int64_t> device_lo_, device_hi_, device_pages_;
  Buffer<uint8_t> device_pool_;
};

// Room for a schedule of up to max_work items.
class ScheduleMemory {
 public:
  ScheduleMemory(Device& device, int64_t sequences, int64_t max_work, int64_t tile_rows,
                 int64_t value_width);

  Schedule Get() const;
  // Whether all counters are zero, as a launch leaves them.
  bool Quiet() const;

 private:
  Buffer<int64_t> work_begin_;
  Buffer<int32_t> split_keys_;
  Buffer<int32_t> arrivals_;
  Buffer<float> partial_;
  int64_t max_work_;
};

}  // namespace attnd::gpu
