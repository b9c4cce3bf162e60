#include "kernels/cpu/attention_scratch.h"

#include <algorithm>

namespace attnd::kernels {
namespace {

// Floats of a SoftmaxState: maximum, sum, values.
int64_t StateFloats(int64_t value_width) { return kTileRows * (2 + RoundUp(value_width, kPanel)); }

SoftmaxState TakeState(float* memory) {
  return {memory, memory + kTileRows, memory + 2 * kTileRows};
}

// Partial results that wait for their merge: four tasks of four ranges a worker.
int64_t SlotCount(int threads) { return 16 * static_cast<int64_t>(threads + 1); }

}  // namespace

absl::Status AttentionWorkspace::Allocate(const BatchLimits& limits, const LocalShape* local,
                                          const GlobalShape* global, int threads) {
  limits_ = limits;
  Widths widths;
  if (local != nullptr) {
    widths = {local->d_head, 0, local->d_head};
  }
  if (global != nullptr) {
    widths.key = std::max({widths.key, global->d_latent, global->d_head});
    widths.rope = global->d_rope;
    widths.value = std::max({widths.value, global->d_latent, global->d_head});
  }
  absl::Status status = AllocateWorkers(widths, threads);
  status.Update(AllocateSlots(widths, threads));
  status.Update(AllocateTiles(local, global));
  if (global != nullptr) {
    status.Update(AllocateExpansion(*global));
  }
  return status;
}

absl::Status AttentionWorkspace::AllocateWorkers(const Widths& widths, int threads) {
  const int64_t query = kTileRows * (widths.key + widths.rope);
  const int64_t scores = kTileKeys * kTileRows;
  const int64_t key = kTileKeys * PaddedWidth(widths.key);
  const int64_t rope = kTilePanels * kTileKeys * widths.rope;
  const int64_t value = kTileKeys * PaddedWidth(widths.value);
  const int64_t state = StateFloats(widths.value);
  const int64_t each = query + scores + key + rope + value + 2 * state;
  absl::Status status = workers_.Allocate("attention workers", threads);
  status.Update(
      worker_memory_.Allocate("attention scratch of the workers", CheckedProduct(each, threads)));
  if (!status.ok()) {
    return status;
  }
  for (int worker = 0; worker < threads; ++worker) {
    float* memory = worker_memory_.get() + worker * each;
    WorkerScratch& scratch = workers_[worker];
    scratch.attend.query = memory;
    scratch.attend.scores = scratch.attend.query + query;
    scratch.attend.key = scratch.attend.scores + scores;
    scratch.attend.rope = scratch.attend.key + key;
    scratch.attend.value = scratch.attend.rope + rope;
    scratch.part = TakeState(scratch.attend.value + value);
    scratch.total = TakeState(scratch.attend.value + value + state);
  }
  return status;
}

absl::Status AttentionWorkspace::AllocateSlots(const Widths& widths, int threads) {
  const int64_t count = SlotCount(threads) + 2;
  const int64_t state = StateFloats(widths.value);
  absl::Status status = slots_.Allocate("attention slots", count);
  status.Update(
      slot_memory_.Allocate("partial results of attention", CheckedProduct(state, count)));
  if (status.ok()) {
    for (int64_t slot = 0; slot < count; ++slot) {
      slots_[slot] = TakeState(slot_memory_.get() + slot * state);
    }
  }
  return status;
}

absl::Status AttentionWorkspace::AllocateTiles(const LocalShape* local, const GlobalShape* global) {
  const int64_t of_local =
      local == nullptr ? 0 : MaxTiles(limits_.max_rows, local->heads_kv, local->group());
  const int64_t of_global =
      global == nullptr ? 0 : MaxTiles(limits_.max_rows, global->heads_kv, global->group());
  const int64_t tiles = of_local < 0 || of_global < 0 ? -1 : std::max(of_local, of_global);
  const absl::Status status = tiles_.Allocate("attention tiles", tiles);
  if (!status.ok()) {
    return status;
  }
  return tasks_.Allocate("attention tasks", tiles + slots());
}

absl::Status AttentionWorkspace::AllocateExpansion(const GlobalShape& shape) {
  const int64_t rows = CheckedProduct(limits_.max_rows, shape.heads_q);
  const int64_t expanded =
      CheckedProduct(kExpandKeys, CheckedProduct(shape.heads_kv, PaddedWidth(shape.d_head)));
  absl::Status status = row_max_.Allocate("running maxima of expanded attention", rows);
  status.Update(row_sum_.Allocate("running sums of expanded attention", rows));
  status.Update(
      latents_.Allocate("latents to expand", CheckedProduct(kExpandKeys, shape.d_latent)));
  status.Update(expanded_keys_.Allocate("expanded keys", expanded));
  status.Update(expanded_values_.Allocate("expanded values", expanded));
  if (status.ok()) {
    // A value row is read up to the next multiple of 16: columns that nobody stores.
    std::fill_n(expanded_values_.get(), expanded, 0.0f);
  }
  return status;
}

}  // namespace attnd::kernels
