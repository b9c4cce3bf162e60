// Attention over pages: local layers, and global layers in the absorbed form or over a shadow.
//
// A tile with more than its share of the batch's keys is split over the workers at the
// boundaries of ranges and merged in ascending order, just as an unsplit tile merges them: the
// bits of a row tell neither whether it was split nor what else was in the batch.
#pragma once

#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/worker_pool.h"

namespace attnd::kernels {

void LocalAttentionParallel(const KernelTable& table, WorkerPool& pool,
                            const AttentionWorkspace& workspace,
                            const LocalAttentionParams& params);
void LatentAttentionParallel(const KernelTable& table, WorkerPool& pool,
                             const AttentionWorkspace& workspace,
                             const LatentAttentionParams& params);
void ShadowAttentionParallel(const KernelTable& table, WorkerPool& pool,
                             const AttentionWorkspace& workspace,
                             const ShadowAttentionParams& params);

// Broken limits end the process: rows, sequences, keys of a row, head counts.
void CheckBatch(const AttentionWorkspace& workspace, const AttentionForm& form,
                const AttentionBatch& batch);

}  // namespace attnd::kernels
