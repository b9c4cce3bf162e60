#include "kernels/cpu/project.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cpu/packed_panels.h"

namespace attnd::kernels {
namespace {

// Multiplications below which waking a worker costs more than it saves: about 10 us of them.
constexpr int64_t kWorthSharing = 1 << 18;
// Tasks per worker: enough that the last one to finish is not far behind.
constexpr int64_t kTasksPerWorker = 4;

int64_t PanelsPerTask(const PackedPanels& weight, int64_t rows, int64_t row_blocks, int threads) {
  const int64_t panels = weight.panels();
  const int64_t multiplications = rows * weight.groups() * weight.out() * weight.in();
  if (threads == 1 || multiplications < kWorthSharing) {
    return panels;
  }
  const int64_t tasks = std::max<int64_t>(1, kTasksPerWorker * threads / row_blocks);
  const int64_t per_task = weight.groups() * panels / tasks;
  // Many rows are packed once per task: a task of 8 panels pays 6 % for that. Four panels are
  // what the streaming tile takes side by side.
  const int64_t least = rows > kProjectRows ? 8 : 4;
  return std::clamp<int64_t>(per_task / 4 * 4, std::min(least, panels), panels);
}

}  // namespace

void ProjectParallel(const KernelTable& table, WorkerPool& pool, const ProjectParams& params,
                     float* scratch) {
  const auto& weight = static_cast<const PackedPanels&>(*params.weight);
  Check(params.rows >= 0 && params.inner >= 1, "a projection has rows");
  const int64_t rows = params.rows * params.inner;
  if (rows == 0) {
    return;
  }
  const int64_t row_blocks = (rows + kProjectRows - 1) / kProjectRows;
  const int64_t per_task = PanelsPerTask(weight, rows, row_blocks, pool.threads());
  const int64_t chunks = (weight.panels() + per_task - 1) / per_task;
  // Row blocks of the same panels follow each other: the panels are then still in the cache.
  const auto run = [&](int64_t task, int worker) {
    const int64_t block = task % row_blocks;
    const int64_t chunk = task / row_blocks % chunks;
    const int64_t group = task / row_blocks / chunks;
    const int64_t panel = chunk * per_task;
    const int64_t column = panel * kPanel;
    ProjectTile tile;
    tile.dtype = weight.dtype();
    tile.panels = weight.Panel(group, panel);
    tile.depth = weight.in();
    tile.columns = std::min(weight.out() - column, per_task * kPanel);
    tile.x = {params.x + group * params.inner * params.x_inner, params.inner, params.x_row,
              params.x_inner};
    tile.y = {params.y + group * params.inner * params.y_inner + column, params.inner, params.y_row,
              params.y_inner};
    tile.row_begin = block * kProjectRows;
    tile.rows = std::min(kProjectRows, rows - tile.row_begin);
    tile.pack = scratch + worker * kProjectScratch;
    table.project(tile);
  };
  const int64_t tasks = weight.groups() * chunks * row_blocks;
  if (rows * weight.groups() * weight.out() * weight.in() < kWorthSharing) {
    for (int64_t task = 0; task < tasks; ++task) {
      run(task, 0);
    }
    return;
  }
  pool.ParallelFor(tasks, run);
}

}  // namespace attnd::kernels
