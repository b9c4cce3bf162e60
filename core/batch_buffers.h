// Between steps and a layer: gathers the rows of a batch's parts into contiguous buffers of the
// backend, and takes their answers back.
#pragma once

#include <cstdint>
#include <vector>

#include "core/layer_batch.h"
#include "core/layer_plan.h"
#include "core/rope.h"
#include "core/work_item.h"
#include "core/workspace.h"
#include "kernels/backend.h"

namespace attnd {

// Forms of MLA, in their order in a batch.
enum class MlaForm : uint8_t { kShadow, kAbsorbed, kExpanded };

// The form in which the answered rows of the part's current chunk attend: over its shadow where
// that reaches the chunk's end; else by cost, and by the part's own rows and history alone.
MlaForm FormOf(const WorkItem& item, const LayerPlan& plan);

class BatchBuffers {
 public:
  // `shadow` is the memory of the shadows, null without.
  BatchBuffers(const LayerPlan& plan, int64_t max_rows, DType cache_dtype, uint8_t* pool,
               int64_t held_row_bytes, uint8_t* shadow);

  void Count(Workspace* workspace);

  // The parts' current chunks as one batch of a layer of `kind`; valid until the next Gather().
  // On global layers the parts must be ordered by their forms.
  LayerBatch Gather(const std::vector<WorkItem*>& items, LayerKind kind, kernels::Backend* backend);

  // After the layer ran: asks for each part's answered rows, which are in its step once the backend
  // was synchronized.
  void Download(const std::vector<WorkItem*>& items, kernels::Backend* backend);
  // Then: fails parts of which a cached value or an answer is not finite.
  void CheckFinite(const std::vector<WorkItem*>& items) const;

 private:
  void GatherAppend(const std::vector<WorkItem*>& items, LayerKind kind, kernels::Backend* backend,
                    LayerBatch* batch);
  void GatherQuery(const std::vector<WorkItem*>& items, LayerKind kind, kernels::Backend* backend,
                   LayerBatch* batch);
  void GatherFill(const std::vector<WorkItem*>& items, kernels::Backend* backend,
                  LayerBatch* batch);
  void UploadRows(const WorkItem& item, int64_t begin, int64_t end, float* x,
                  kernels::Backend* backend) const;
  void UploadAngles(const RopeTable& rope, const std::vector<int64_t>& positions, float* cos,
                    float* sin, kernels::Backend* backend);

  const LayerPlan& plan_;
  const int64_t max_rows_;
  const DType cache_dtype_;
  uint8_t* const pool_;
  const int64_t held_row_bytes_;
  uint8_t* const shadow_;
  const RopeTable local_rope_, global_rope_;

  // Of the backend.
  float *append_x_ = nullptr, *query_x_ = nullptr, *output_ = nullptr;  // [max_rows][d_model]
  float *append_cos_ = nullptr, *append_sin_ = nullptr;                 // [max_rows][half]
  float *query_cos_ = nullptr, *query_sin_ = nullptr;                   // likewise
  int64_t* page_ = nullptr;                                             // [max_rows]
  int32_t* slot_ = nullptr;                                             // [max_rows]
  uint8_t* not_finite_ = nullptr;                                       // [max_rows]
  // Rows to decompress: of history, and new ones.
  int64_t *fill_page_ = nullptr, *fill_shadow_page_ = nullptr;  // [kShadowFillRows + max_rows]
  int32_t* fill_slot_ = nullptr;                                // likewise

  // Of the host, their capacity kept from batch to batch.
  std::vector<int64_t> positions_, pages_, shadow_pages_, lo_, hi_;
  std::vector<int32_t> slots_;
  std::vector<uint8_t> flags_;
  std::vector<float> cos_, sin_;
  std::vector<kernels::AttentionSequence> sequences_;
};

}  // namespace attnd
