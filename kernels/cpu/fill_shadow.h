// Decompresses rows of latent pages into a shadow's pages, a block of them at a time.
#pragma once

#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/worker_pool.h"

namespace attnd::kernels {

// `project_scratch` as ProjectParallel wants it.
void FillShadowParallel(const KernelTable& table, WorkerPool& pool,
                        const AttentionWorkspace& workspace, const FillShadowParams& params,
                        float* project_scratch);

}  // namespace attnd::kernels
