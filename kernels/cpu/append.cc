#include "kernels/cpu/append.h"

#include "kernels/cache_layout.h"
#include "kernels/check.h"

namespace attnd::kernels {
namespace {

// Rows that are worth sharing with a worker.
constexpr int64_t kRowsPerTask = 32;

// Calls append(row) for all rows of the target; a false answer marks the row.
template <typename Append>
void ForRows(WorkerPool& pool, const AppendTarget& target, const Append& append) {
  const int64_t tasks = (target.rows + kRowsPerTask - 1) / kRowsPerTask;
  pool.ParallelFor(tasks, [&](int64_t task, int /*worker*/) {
    const int64_t begin = task * kRowsPerTask;
    const int64_t end = begin + kRowsPerTask < target.rows ? begin + kRowsPerTask : target.rows;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t slot = target.slot[row];
      Check(slot >= 0 && slot < kPageTokens, "a slot is within its page");
      if (!append(row, slot, target.pool + target.page[row])) {
        target.not_finite[row] = 1;
      }
    }
  });
}

}  // namespace

void AppendLocalRows(WorkerPool& pool, const AppendLocalParams& params) {
  const LocalShape& shape = params.shape;
  const DType dtype = params.target.dtype;
  const int64_t width = shape.d_head;
  ForRows(pool, params.target, [&](int64_t row, int64_t slot, uint8_t* page) {
    bool finite = true;
    for (int64_t head = 0; head < shape.heads_kv; ++head) {
      const int64_t from = (row * shape.heads_kv + head) * width;
      finite &= StoreRow(KeyRows(shape, dtype, head), slot, params.key + from, width, page);
      finite &= StoreRow(ValueRows(shape, dtype, head), slot, params.value + from, width, page);
    }
    return finite;
  });
}

void AppendGlobalRows(WorkerPool& pool, const AppendGlobalParams& params) {
  const GlobalShape& shape = params.shape;
  const PageRows latents = LatentRows(shape, params.target.dtype);
  const PageRows ropes = RopeRows(shape, params.target.dtype);
  const int64_t rope_width = shape.heads_kv * shape.d_rope;
  ForRows(pool, params.target, [&](int64_t row, int64_t slot, uint8_t* page) {
    bool finite =
        StoreRow(latents, slot, params.latent + row * shape.d_latent, shape.d_latent, page);
    finite &= StoreRow(ropes, slot, params.rope_key + row * rope_width, rope_width, page);
    return finite;
  });
}

}  // namespace attnd::kernels
