#include "kernels/cpu/fill_shadow.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cpu/project.h"

namespace attnd::kernels {
namespace {

// Rows that are worth sharing with a worker: a row is widened or copied in about 2 us.
constexpr int64_t kRowsPerTask = 16;

template <typename F>
void ForRows(WorkerPool& pool, int64_t rows, const F& f) {
  pool.ParallelFor((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int /*worker*/) {
    const int64_t end = std::min((task + 1) * kRowsPerTask, rows);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) {
      f(row);
    }
  });
}

}  // namespace

void FillShadowParallel(const KernelTable& table, WorkerPool& pool,
                        const AttentionWorkspace& workspace, const FillShadowParams& params,
                        float* project_scratch) {
  const GlobalShape& shape = params.shape;
  const ShadowShape of_shadow = ShadowOf(shape);
  const int64_t width = shape.d_head;
  const PageRows latent_rows = LatentRows(shape, params.dtype);
  const PageRows rope_rows = RopeRows(shape, params.dtype);
  for (int64_t begin = 0; begin < params.rows; begin += kExpandKeys) {
    const int64_t rows = std::min(kExpandKeys, params.rows - begin);
    ForRows(pool, rows, [&](int64_t row) {
      const int64_t slot = params.slot[begin + row];
      Check(slot >= 0 && slot < kPageTokens, "a slot is within its page");
      const uint8_t* page = params.pool + params.page[begin + row];
      table.widen(params.dtype, page + latent_rows.offset + slot * latent_rows.stride,
                  ScaleOf(latent_rows, slot, page), shape.d_latent,
                  workspace.latents() + row * shape.d_latent);
    });
    const auto expand = [&](const PackedWeight* weight, float* to) {
      ProjectParams project;
      project.weight = weight;
      project.rows = rows;
      project.x = workspace.latents();
      project.x_row = shape.d_latent;
      project.x_inner = 0;  // every KV head expands the same latent
      project.y = to;
      project.y_row = PaddedWidth(width);
      project.y_inner = kExpandKeys * PaddedWidth(width);
      ProjectParallel(table, pool, project, project_scratch);
    };
    expand(params.expand_key, workspace.expanded_keys());
    expand(params.expand_value, workspace.expanded_values());
    ForRows(pool, rows, [&](int64_t row) {
      auto* page = reinterpret_cast<float*>(params.shadow + params.shadow_page[begin + row]);
      const int64_t slot = params.slot[begin + row];
      const uint8_t* rope =
          params.pool + params.page[begin + row] + rope_rows.offset + slot * rope_rows.stride;
      for (int64_t head = 0; head < shape.heads_kv; ++head) {
        const int64_t from = (head * kExpandKeys + row) * PaddedWidth(width);
        float* to = page + (head * kPageTokens + slot) * of_shadow.head_elements();
        std::copy_n(workspace.expanded_keys() + from, width, to);
        table.widen(rope_rows.dtype, rope + head * shape.d_rope * DTypeSize(rope_rows.dtype), 1,
                    shape.d_rope, to + width);
        std::copy_n(workspace.expanded_values() + from, width, to + of_shadow.key_width());
      }
    });
  }
}

}  // namespace attnd::kernels
