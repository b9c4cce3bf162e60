// Into how many splits the keys of a sequence are cut, by what the sequence has alone: so a row's
// bits do not depend on the batch. Sequences of one class are launched together.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_batch.h"
#include "kernels/cuda/schedule.h"

namespace attnd::kernels::cuda {

struct SplitClass {
  bool decode = false;     // variant of the kernel
  int32_t split_keys = 0;  // 0: chosen on the device
  int64_t max_splits = 1;  // of a sequence
};

// A batch of one sequence should occupy every multiprocessor, and one of many should not write more
// partials than keys. Few tiles are cut into up to 64 splits of at least 512 keys (16 rows of
// partials of them are a sixteenth of their bytes), some into 32 or fewer, many into none.
class SplitPlan {
 public:
  // `max_keys`: that the rows of a sequence span.
  SplitPlan(bool deterministic, int64_t max_keys);

  // Of a sequence with so many tiles and keys.
  int ClassOf(bool decode, int64_t tiles, int64_t keys) const;
  const SplitClass& At(int index) const { return classes_[index]; }
  // Work items of one sequence that is cut into splits, of up to so many tiles.
  int64_t MostWork(int64_t decode_tiles, int64_t tiles) const;

 private:
  const bool deterministic_;
  SplitClass classes_[kMaxClasses];
};

}  // namespace attnd::kernels::cuda
