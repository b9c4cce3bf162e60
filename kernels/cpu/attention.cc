#include "kernels/cpu/attention.h"

#include <algorithm>

#include "kernels/check.h"

namespace attnd::kernels {
namespace {

// Multiplications of a batch below which it stays on the calling thread.
constexpr int64_t kWorthSharing = 1 << 18;
constexpr int64_t kMaxTaskRanges = 4;

int64_t RangesOf(const AttentionTask& task) {
  return (task.key_end - 1) / kRangeKeys - task.key_begin / kRangeKeys + 1;
}

template <typename Shape>
class PagedAttention {
 public:
  PagedAttention(const KernelTable& table, WorkerPool& pool, const AttentionWorkspace& workspace,
                 const AttentionForm& form, const Shape& shape, const AttentionBatch& batch)
      : table_(table),
        pool_(pool),
        workspace_(workspace),
        form_(form),
        shape_(shape),
        batch_(batch) {}

  void Run() {
    PlanAll();
    const int64_t share = SplitAbove();
    for (int64_t tile = 0; tile < num_tiles_; ++tile) {
      const AttentionTile& t = workspace_.tiles()[tile];
      if (Work(t) <= share) {
        workspace_.tasks()[num_tasks_++] = {tile, t.key_begin, t.key_end, -1};
      } else {
        Split(tile, share);
      }
    }
    RunWave(/*complete=*/true);
  }

 private:
  static int64_t Work(const AttentionTile& tile) {
    return (tile.key_end - tile.key_begin) * RoundUp(tile.rows, kPanel);
  }

  void PlanAll() {
    for (int64_t sequence = 0; sequence < batch_.num_sequences; ++sequence) {
      const AttentionSequence& rows = batch_.sequences[sequence];
      for (int64_t row = rows.row_begin; row < rows.row_begin + rows.rows;) {
        const RowRun run = NextRun(batch_, sequence, row);
        num_tiles_ +=
            PlanTiles(batch_, run, form_.heads_kv, form_.group(), workspace_.tiles() + num_tiles_);
        row = run.row_end;
      }
    }
    Check(num_tiles_ <= workspace_.max_tiles(), "the tiles of a batch are within the workspace");
  }

  // The work above which one tile could keep the others waiting: a quarter of a worker's share.
  int64_t SplitAbove() {
    int64_t total = 0;
    for (int64_t tile = 0; tile < num_tiles_; ++tile) {
      total += Work(workspace_.tiles()[tile]);
    }
    shared_ = total * (form_.key_width + form_.rope_width + form_.value_width) >= kWorthSharing;
    const bool alone = pool_.threads() == 1 || !shared_;
    return alone ? total : total / (4 * pool_.threads());
  }

  // Queues the ranges of a tile, a slot each, some to a task of about `share` of work: each task
  // packs the queries again. A full wave is run in between.
  void Split(int64_t tile, int64_t share) {
    const AttentionTile& t = workspace_.tiles()[tile];
    const int64_t range_work = kRangeKeys * RoundUp(t.rows, kPanel);
    const int64_t ranges = std::clamp<int64_t>(share / range_work, 1, kMaxTaskRanges);
    for (int64_t begin = t.key_begin; begin < t.key_end;) {
      const int64_t end = std::min((begin / kRangeKeys + ranges) * kRangeKeys, t.key_end);
      const int64_t slots = RangesOf({tile, begin, end, 0});
      if (num_slots_ + slots > workspace_.slots()) {
        RunWave(/*complete=*/begin == t.key_begin);
      }
      workspace_.tasks()[num_tasks_++] = {tile, begin, end, num_slots_};
      num_slots_ += slots;
      begin = end;
    }
  }

  // Runs what is queued and merges the split tiles; the last of them goes on in the next wave
  // unless `complete`.
  void RunWave(bool complete) {
    ForEach(num_tasks_, [this](int64_t task, int worker) { Attend(task, worker); });
    if (num_slots_ > 0) {
      ForEach(num_tasks_,
              [this, complete](int64_t task, int worker) { MergeFrom(task, complete, worker); });
    }
    carried_ = !complete;
    carry_ ^= 1;
    num_tasks_ = 0;
    num_slots_ = 0;
  }

  template <typename F>
  void ForEach(int64_t tasks, const F& f) {
    if (shared_) {
      pool_.ParallelFor(tasks, f);
      return;
    }
    for (int64_t task = 0; task < tasks; ++task) {
      f(task, 0);
    }
  }

  void Attend(int64_t index, int worker) {
    const AttentionTask& task = workspace_.tasks()[index];
    const AttentionTile& tile = workspace_.tiles()[task.tile];
    WorkerScratch& scratch = workspace_.worker(worker);
    if (task.key_begin == task.key_end) {
      std::fill_n(scratch.total.sum, kTileRows, 0.0f);
      StoreTile(table_, form_, tile, scratch.total);
      return;
    }
    const KeySource keys = KeysOf(shape_, batch_, tile.sequence, tile.kv_head);
    LoadTile(table_, form_, batch_, tile, &scratch);
    if (task.slot < 0) {
      AttendRanges(table_, keys, tile, &scratch, task.key_begin, task.key_end, /*fresh=*/true,
                   scratch.total);
      StoreTile(table_, form_, tile, scratch.total);
      return;
    }
    for (int64_t begin = task.key_begin, slot = task.slot; begin < task.key_end; ++slot) {
      const int64_t end = std::min((begin / kRangeKeys + 1) * kRangeKeys, task.key_end);
      AttendRanges(table_, keys, tile, &scratch, begin, end, /*fresh=*/true, workspace_.slot(slot));
      begin = end;
    }
  }

  // The first task of a split tile in this wave merges all of that tile's.
  void MergeFrom(int64_t index, bool complete, int /*worker*/) {
    const AttentionTask* tasks = workspace_.tasks();
    const int64_t tile_index = tasks[index].tile;
    if (tasks[index].slot < 0 || (index > 0 && tasks[index - 1].tile == tile_index)) {
      return;
    }
    const AttentionTile& tile = workspace_.tiles()[tile_index];
    const bool continues = carried_ && tasks[index].key_begin > tile.key_begin;
    const SoftmaxState& total =
        continues ? workspace_.carry(carry_) : workspace_.slot(tasks[index].slot);
    const int64_t width = RoundUp(form_.value_width, kPanel);
    int64_t next = index;
    int64_t end = tasks[index].slot;
    for (; next < num_tasks_ && tasks[next].tile == tile_index; ++next) {
      end += RangesOf(tasks[next]);
    }
    for (int64_t slot = tasks[index].slot + (continues ? 0 : 1); slot < end; ++slot) {
      table_.merge(total, workspace_.slot(slot), tile.rows, width);
    }
    if (next < num_tasks_ || complete) {
      StoreTile(table_, form_, tile, total);
      return;
    }
    const SoftmaxState& to = workspace_.carry(carry_ ^ 1);
    std::copy_n(total.max, kTileRows, to.max);
    std::copy_n(total.sum, kTileRows, to.sum);
    std::copy_n(total.values, tile.rows * width, to.values);
  }

  const KernelTable& table_;
  WorkerPool& pool_;
  const AttentionWorkspace& workspace_;
  const AttentionForm form_;
  const Shape shape_;
  const AttentionBatch& batch_;
  int64_t num_tiles_ = 0;
  int64_t num_tasks_ = 0;
  int64_t num_slots_ = 0;
  bool shared_ = false;
  bool carried_ = false;  // the first tile of this wave began in the one before
  int64_t carry_ = 0;     // and its state so far is in this carry
};

}  // namespace

void CheckBatch(const AttentionWorkspace& workspace, const AttentionForm& form,
                const AttentionBatch& batch) {
  Check(form.heads_kv >= 1 && form.heads_q % form.heads_kv == 0, "query heads fill KV heads");
  Check(batch.num_sequences <= workspace.limits().max_sequences, "sequences are within the limit");
  int64_t rows = 0;
  for (int64_t sequence = 0; sequence < batch.num_sequences; ++sequence) {
    const AttentionSequence& s = batch.sequences[sequence];
    rows += s.rows;
    for (int64_t row = s.row_begin; row < s.row_begin + s.rows; ++row) {
      Check(batch.hi[row] - batch.lo[row] <= workspace.limits().max_keys,
            "the keys of a row are within the limit");
      Check(row == s.row_begin ||
                (batch.lo[row - 1] <= batch.lo[row] && batch.hi[row - 1] <= batch.hi[row]),
            "intervals never decrease within a sequence");
    }
  }
  Check(rows <= workspace.limits().max_rows, "rows are within the limit");
}

void LocalAttentionParallel(const KernelTable& table, WorkerPool& pool,
                            const AttentionWorkspace& workspace,
                            const LocalAttentionParams& params) {
  const AttentionForm form = FormOf(params);
  CheckBatch(workspace, form, params.batch);
  PagedAttention<LocalShape>(table, pool, workspace, form, params.shape, params.batch).Run();
}

void LatentAttentionParallel(const KernelTable& table, WorkerPool& pool,
                             const AttentionWorkspace& workspace,
                             const LatentAttentionParams& params) {
  const AttentionForm form = FormOf(params);
  CheckBatch(workspace, form, params.batch);
  PagedAttention<GlobalShape>(table, pool, workspace, form, params.shape, params.batch).Run();
}

void ShadowAttentionParallel(const KernelTable& table, WorkerPool& pool,
                             const AttentionWorkspace& workspace,
                             const ShadowAttentionParams& params) {
  const AttentionForm form = FormOf(params);
  CheckBatch(workspace, form, params.batch);
  Check(params.batch.dtype == DType::kF32, "a shadow is float32");
  PagedAttention<ShadowShape>(table, pool, workspace, form, params.shape, params.batch).Run();
}

}  // namespace attnd::kernels
