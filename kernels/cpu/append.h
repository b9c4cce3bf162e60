// Writes new rows into the pages, in the cache's dtype.
#pragma once

#include "kernels/cpu/worker_pool.h"
#include "kernels/params.h"

namespace attnd::kernels {

void AppendLocalRows(WorkerPool& pool, const AppendLocalParams& params);
void AppendGlobalRows(WorkerPool& pool, const AppendGlobalParams& params);

}  // namespace attnd::kernels
