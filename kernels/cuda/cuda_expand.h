// Attention over expanded latents: a block of the history at a time becomes keys and values of
// every KV head, in pages like a local layer's, and what the rows have seen of it is carried to the
// next.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/cuda_project.h"
#include "kernels/cuda/device_batch.h"
#include "kernels/params.h"

namespace attnd::kernels::cuda {

class CudaExpansion {
 public:
  // `block_keys`: keys of a block, a multiple of kGemmRows; blocks begin at multiples of it.
  CudaExpansion(std::shared_ptr<Runtime> runtime, Staging* staging, Projector* projector,
                CudaAttention* attention, int64_t block_keys)
      : runtime_(std::move(runtime)),
        staging_(staging),
        projector_(projector),
        attention_(attention),
        block_keys_(block_keys) {}

  absl::Status Prepare(const BatchLimits& limits, const GlobalShape& shape);

  // The sequence that the device has as `view` in `batch`.
  void Run(const ExpandedAttentionParams& params, const BatchView& batch, const SequenceView& view);

 private:
  // Rows whose keys leave no gap, for what lies between is read too.
  struct RowRun {
    int64_t row_begin = 0;
    int64_t rows = 0;
    KeySpan keys;
  };
  struct Block {
    int64_t begin = 0;
    int64_t end = 0;
    bool first = false;
    bool last = false;
  };
  static RowRun NextRun(const AttentionBatch& batch, int64_t row, int64_t row_end);
  void UploadTable(const GlobalShape& shape, DType element);
  void Expand(const ExpandedAttentionParams& params, const BatchView& batch,
              const SequenceView& view, const Block& block);
  void Attend(const ExpandedAttentionParams& params, const BatchView& batch, const RowRun& run,
              const Block& block);

  std::shared_ptr<Runtime> runtime_;
  Staging* const staging_;
  Projector* const projector_;
  CudaAttention* const attention_;
  const int64_t block_keys_;
  OwnedDeviceMemory latents_;        // [block_keys][d_latent], of the weight's dtype
  OwnedDeviceMemory keys_, values_;  // [heads_kv][block_keys][d_head] float32
  OwnedDeviceMemory pages_;          // what is attended over
  OwnedDeviceMemory table_;          // int64 [block_keys / 64]: the pages one after the other
  OwnedDeviceMemory view_;           // a SequenceView
  OwnedDeviceMemory carry_;          // [max_rows][heads_q][d_head + 2] float32
};

}  // namespace attnd::kernels::cuda
