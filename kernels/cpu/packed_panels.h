// Weights in panels: per group [out / 16][in][16], the outputs beyond `out` zero. A lane of a
// vector is an output, so one layout streams for one row, feeds register tiles for many, and
// sums every output over the inputs in one order.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/kernel_table.h"

namespace attnd::kernels {

class PackedPanels : public PackedWeight {
 public:
  int64_t bytes() const override { return memory_.size(); }

  DType dtype() const { return dtype_; }
  int64_t groups() const { return groups_; }
  int64_t out() const { return out_; }
  int64_t in() const { return in_; }
  int64_t panels() const { return RoundUp(out_, kPanel) / kPanel; }  // of one group
  const uint8_t* Panel(int64_t group, int64_t panel) const {
    return memory_.get() + (group * panels() + panel) * in_ * kPanel * DTypeSize(dtype_);
  }

 private:
  friend absl::StatusOr<std::unique_ptr<PackedPanels>> PackPanels(const WeightView& weight);

  DType dtype_ = DType::kF32;
  int64_t groups_ = 0;
  int64_t out_ = 0;
  int64_t in_ = 0;
  AlignedArray<uint8_t> memory_;
};

// RESOURCE_EXHAUSTED with the bytes when there is no memory.
absl::StatusOr<std::unique_ptr<PackedPanels>> PackPanels(const WeightView& weight);

}  // namespace attnd::kernels
