// Global layers in the decompressed form: keys and values are expanded from the latents, one
// block of the history at a time, and every row of the sequence attends to the block.
#pragma once

#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/worker_pool.h"

namespace attnd::kernels {

void ExpandedAttentionParallel(const KernelTable& table, WorkerPool& pool,
                               const AttentionWorkspace& workspace,
                               const ExpandedAttentionParams& params, float* project_scratch);

}  // namespace attnd::kernels
