// The scratch memory of attention, taken once for the largest batch, and what every form of
// attention does with a tile before and after its keys.
#pragma once

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/kernel_table.h"

namespace attnd::kernels {

// What attention needs to know of a layer, whichever kind and form.
struct AttentionForm {
  int64_t heads_q = 0;
  int64_t heads_kv = 0;
  int64_t key_width = 0;
  int64_t rope_width = 0;
  int64_t value_width = 0;
  const float* query = nullptr;       // [rows][heads_q][key_width]
  const float* rope_query = nullptr;  // [rows][heads_q][rope_width]
  float* output = nullptr;            // [rows][heads_q][value_width]
  int64_t rope_group = 1;             // query heads that share a rope key

  int64_t group() const { return heads_q / heads_kv; }
};

AttentionForm FormOf(const LocalAttentionParams& params);
AttentionForm FormOf(const LatentAttentionParams& params);
AttentionForm FormOf(const ExpandedAttentionParams& params);
AttentionForm FormOf(const ShadowAttentionParams& params);

// Where the keys of a KV head lie in the pages of a sequence.
KeySource KeysOf(const LocalShape& shape, const AttentionBatch& batch, int64_t sequence,
                 int64_t kv_head);
KeySource KeysOf(const GlobalShape& shape, const AttentionBatch& batch, int64_t sequence,
                 int64_t kv_head);
KeySource KeysOf(const ShadowShape& shape, const AttentionBatch& batch, int64_t sequence,
                 int64_t kv_head);

// Keys [begin, end), for one task. The result goes to the output when `slot` is -1; otherwise
// that of each of its ranges to a slot, from `slot` on.
struct AttentionTask {
  int64_t tile = 0;
  int64_t key_begin = 0;
  int64_t key_end = 0;
  int64_t slot = 0;
};

// One worker's.
struct WorkerScratch {
  AttendScratch attend;
  SoftmaxState part;
  SoftmaxState total;
  int64_t lo[kTileRows];
  int64_t hi[kTileRows];
  int64_t rope_offset[kTilePanels];
};

class AttentionWorkspace {
 public:
  absl::Status Allocate(const BatchLimits& limits, const LocalShape* local,
                        const GlobalShape* global, int threads);

  const BatchLimits& limits() const { return limits_; }
  WorkerScratch& worker(int worker) const { return workers_[worker]; }
  AttentionTile* tiles() const { return tiles_.get(); }
  int64_t max_tiles() const { return tiles_.size(); }
  AttentionTask* tasks() const { return tasks_.get(); }
  // Partial results of split tiles; `slots()` of them, and two to carry a tile on.
  const SoftmaxState& slot(int64_t slot) const { return slots_[slot]; }
  int64_t slots() const { return slots_.size() - 2; }
  const SoftmaxState& carry(int64_t which) const { return slots_[slots() + which]; }

  // The expanded form's: running maximum and sum [max_rows][heads_q], and one block's latents
  // [kExpandKeys][d_latent], keys and values [heads_kv][kExpandKeys][PaddedWidth(d_head)].
  float* row_max() const { return row_max_.get(); }
  float* row_sum() const { return row_sum_.get(); }
  float* latents() const { return latents_.get(); }
  float* expanded_keys() const { return expanded_keys_.get(); }
  float* expanded_values() const { return expanded_values_.get(); }

 private:
  struct Widths {
    int64_t key = 0;
    int64_t rope = 0;
    int64_t value = 0;
  };
  absl::Status AllocateWorkers(const Widths& widths, int threads);
  absl::Status AllocateSlots(const Widths& widths, int threads);
  absl::Status AllocateTiles(const LocalShape* local, const GlobalShape* global);
  absl::Status AllocateExpansion(const GlobalShape& shape);

  BatchLimits limits_;
  AlignedArray<WorkerScratch> workers_;
  AlignedArray<SoftmaxState> slots_;
  AlignedArray<AttentionTile> tiles_;
  AlignedArray<AttentionTask> tasks_;
  AlignedArray<float> worker_memory_;
  AlignedArray<float> slot_memory_;
  AlignedArray<float> row_max_;
  AlignedArray<float> row_sum_;
  AlignedArray<float> latents_;
  AlignedArray<float> expanded_keys_;
  AlignedArray<float> expanded_values_;
};

// Keys that the expanded form holds at a time; whole ranges.
inline constexpr int64_t kExpandKeys = 2 * kRangeKeys;

// Fills the intervals and rope keys of a tile's packed rows and packs their queries, scaled.
void LoadTile(const KernelTable& table, const AttentionForm& form, const AttentionBatch& batch,
              const AttentionTile& tile, WorkerScratch* scratch);

// values / sum of every row to the output; a row that saw nothing becomes zero.
void StoreTile(const KernelTable& table, const AttentionForm& form, const AttentionTile& tile,
               const SoftmaxState& state);

// Element 0 of packed row p of the tile in a [rows][heads_q][width] array.
template <typename T>
T* PackedRow(T* array, const AttentionForm& form, const AttentionTile& tile, int64_t p,
             int64_t width) {
  const int64_t packed = tile.packed_begin + p;
  const int64_t row = tile.row_begin + packed / form.group();
  const int64_t head = tile.kv_head * form.group() + packed % form.group();
  return array + (row * form.heads_q + head) * width;
}

// Attends to [begin, end), range by range in ascending order, into `total`, which is
// overwritten when `fresh` and continued otherwise. `keys` gives the place of the keys.
void AttendRanges(const KernelTable& table, const KeySource& keys, const AttentionTile& tile,
                  WorkerScratch* scratch, int64_t begin, int64_t end, bool fresh,
                  const SoftmaxState& total);

}  // namespace attnd::kernels
