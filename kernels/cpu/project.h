// Splits a projection over the workers: panels times blocks of rows.
#pragma once

#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/worker_pool.h"
#include "kernels/params.h"

namespace attnd::kernels {

// Floats of scratch that ProjectRows wants for each worker.
inline constexpr int64_t kProjectScratch = kProjectRows * kDepthBlock;

// params.weight is a PackedPanels; `scratch` has threads * kProjectScratch floats.
void ProjectParallel(const KernelTable& table, WorkerPool& pool, const ProjectParams& params,
                     float* scratch);

}  // namespace attnd::kernels
