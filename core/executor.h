// Runs batches: begins parts (position checks, pages), computes a chunk of each on their layer,
// commits or abandons. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/batch_buffers.h"
#include "core/clock.h"
#include "core/gqa_layer.h"
#include "core/layer_plan.h"
#include "core/layer_weights.h"
#include "core/mla_layer.h"
#include "core/mla_shadow.h"
#include "core/page_pool.h"
#include "core/work_item.h"
#include "core/workspace.h"
#include "kernels/backend.h"

namespace attnd {

// One batch that ran.
struct BatchReport {
  int64_t layer = 0;
  LayerKind kind = LayerKind::kLocal;
  int64_t prefill_rows = 0;
  int64_t decode_rows = 0;
  // Of prefill_rows, those that were appended. A row of a prefix runs twice: its keys when it
  // arrives, its query when the prefix is complete.
  int64_t prefill_appended = 0;
  int64_t compute_ns = 0;

  int64_t rows() const { return prefill_rows + decode_rows; }
};

struct ExecutorOptions {
  int64_t max_batch_rows = 0;
  DType cache_dtype = DType::kF32;
  ShadowStore* shadows = nullptr;  // null: global layers have none
};

class Executor {
 public:
  // Takes all memory that running needs. The references outlive the executor.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(const LayerPlan& plan,
                                                          std::vector<LayerWeights> weights,
                                                          const ExecutorOptions& options,
                                                          PagePool* pool, kernels::Backend* backend,
                                                          const Clock& clock);

  // Runs one chunk of every part (a rewind: all of it). Parts that are done or have failed are
  // marked finished, with the length of their layer. Says what ran; no rows for rewinds.
  BatchReport Run(const std::vector<WorkItem*>& items);

 private:
  Executor(const LayerPlan& plan, std::vector<LayerWeights> weights, const ExecutorOptions& options,
           PagePool* pool, kernels::Backend* backend, const Clock& clock);

  static void Operate(WorkItem* item);
  void Begin(WorkItem* item) const;
  void HoldRows(const WorkItem& item) const;
  void PlanShadows(const std::vector<WorkItem*>& items) const;
  void Compute(const std::vector<WorkItem*>& items, BatchReport* report);
  void Advance(WorkItem* item) const;

  const LayerPlan& plan_;
  const std::vector<LayerWeights> weights_;
  PagePool* const pool_;
  kernels::Backend* const backend_;
  ShadowStore* const shadows_;
  const Clock& clock_;
  Workspace workspace_;
  GqaBuffers gqa_;
  MlaBuffers mla_;
  BatchBuffers batch_;
};

}  // namespace attnd
