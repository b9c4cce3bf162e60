// Attention over pages on the device: which kernel takes a batch, with which splits.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kernels/cuda/device_batch.h"
#include "kernels/cuda/gqa/gqa.h"
#include "kernels/cuda/latent/latent.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/plain/plain_attention.h"
#include "kernels/cuda/split_classes.h"

namespace attnd::kernels::cuda {

struct AttentionOptions {
  bool deterministic = true;
  bool tensor_cores = true;  // false: the plain kernel alone, for comparisons
  int64_t partial_bytes = int64_t{256} << 20;
};

class CudaAttention {
 public:
  CudaAttention(std::shared_ptr<Runtime> runtime, const AttentionOptions& options)
      : runtime_(std::move(runtime)), options_(options) {}

  absl::Status Prepare(const BatchLimits& limits, const LocalShape* local,
                       const GlobalShape* global);

  // How a batch of these has its sequences ordered.
  Classify ClassifyLocal(const LocalShape& shape, DType dtype) const;
  Classify ClassifyLatent(const GlobalShape& shape, DType dtype) const;

  void Launch(const LocalOperation& operation);
  void Launch(const LatentOperation& operation);
  // One sequence of so many rows, without splits. `plain` says the same for the plain kernel.
  void LaunchWhole(GqaParams params, const PlainParams& plain, DType element, int64_t rows);

 private:
  // What a kernel takes of a batch.
  struct Form {
    TileShape tiles;
    int64_t tile_rows = 0;
    int64_t width = 0;
    int grid = 0;
  };
  // Sequences of one class.
  struct Share {
    SplitClass split;
    int first = 0;
    int count = 0;
    int64_t rows = 0;  // of the longest
  };

  bool UsesTensorCores(const GqaParams& params, DType element) const {
    return options_.tensor_cores && GqaSupports(params, element);
  }
  LatentPlan PlanOf(const LatentParams& params, DType dtype) const;
  Form FormOf(const GqaParams& params, GqaVariant variant) const;
  Form FormOf(const LatentParams& params, const LatentPlan& plan) const;
  template <typename F>
  void ForShares(const DeviceBatch& batch, const F& launch);
  // Schedules as many sequences at a time as have room for their partials, and calls
  // launch(BatchView, Schedule) for them.
  template <typename F>
  void LaunchShare(const BatchView& view, const Share& share, const Form& form, const F& launch);
  void LaunchGqaShare(GqaParams params, GqaVariant variant, DType element, const Share& share);
  void LaunchPlain(const PlainParams& params);

  std::shared_ptr<Runtime> runtime_;
  const AttentionOptions options_;
  std::unique_ptr<SplitPlan> splits_;
  OwnedDeviceMemory work_begin_, arrivals_, partial_;
  int64_t max_work_ = 0;  // arrivals that there are
};

}  // namespace attnd::kernels::cuda
