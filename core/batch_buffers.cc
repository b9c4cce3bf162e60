#include "core/batch_buffers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/planner.h"
#include "core/visible.h"
#include "kernels/check.h"

namespace attnd {
namespace {

using kernels::kPageTokens;

int64_t MaxHalf(const LayerPlan& plan) {
  return std::max(plan.local.rope.width, plan.global.rope.width) / 2;
}

bool SameRows(const std::vector<WorkItem*>& items) {
  return std::all_of(items.begin(), items.end(), [](const WorkItem* item) {
    const Chunk& chunk = item->chunk();
    return chunk.append_begin == chunk.query_begin && chunk.append_end == chunk.query_end;
  });
}

bool AllFinite(const float* values, int64_t n) {
  // A NaN or infinity times zero is NaN, and NaN stays in a sum.
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += values[i] * 0.0F;
  }
  return sum == 0.0F;
}

// Where the part's answered row at `position` goes in its step's output.
float* OutputRow(const WorkItem& item, int64_t position, int64_t d_model) {
  Step& step = item.step();
  const int64_t row = step.kind == StepKind::kDecode
                          ? item.first_row + position - item.part().position
                          : position - item.plan.output_position;
  return step.output.data() + row * d_model;
}

}  // namespace

MlaForm FormOf(const WorkItem& item, const LayerPlan& plan) {
  const Chunk& chunk = item.chunk();
  if (item.draft->shadow_fill.end >= chunk.append_end && chunk.append_end > 0) {
    return MlaForm::kShadow;
  }
  const int64_t rows = chunk.query_end - chunk.query_begin;
  const int64_t keys =
      Visible(LayerKind::kGlobal, chunk.query_end - 1, item.draft->rules.prefix, 0).hi;
  return rows > 0 && PreferAbsorbed(plan.global.shape, rows, keys) ? MlaForm::kAbsorbed
                                                                   : MlaForm::kExpanded;
}

BatchBuffers::BatchBuffers(const LayerPlan& plan, int64_t max_rows, DType cache_dtype,
                           uint8_t* pool, int64_t held_row_bytes, uint8_t* shadow)
    : plan_(plan),
      max_rows_(max_rows),
      cache_dtype_(cache_dtype),
      pool_(pool),
      held_row_bytes_(held_row_bytes),
      shadow_(shadow),
      local_rope_(plan.local.rope, plan.max_seq_len),
      global_rope_(plan.global.rope, plan.max_seq_len) {}

void BatchBuffers::Count(Workspace* workspace) {
  const int64_t half = MaxHalf(plan_);
  workspace->Add("appended rows", max_rows_ * plan_.d_model, &append_x_);
  workspace->Add("query rows", max_rows_ * plan_.d_model, &query_x_);
  workspace->Add("output rows", max_rows_ * plan_.d_model, &output_);
  workspace->Add("cosines of appended rows", max_rows_ * half, &append_cos_);
  workspace->Add("sines of appended rows", max_rows_ * half, &append_sin_);
  workspace->Add("cosines of query rows", max_rows_ * half, &query_cos_);
  workspace->Add("sines of query rows", max_rows_ * half, &query_sin_);
  workspace->Add("pages of appended rows", max_rows_, &page_);
  workspace->Add("slots of appended rows", max_rows_, &slot_);
  workspace->Add("finiteness of appended rows", max_rows_, &not_finite_);
  if (shadow_ != nullptr) {
    const int64_t rows = kShadowFillRows + max_rows_;
    workspace->Add("pages of rows to decompress", rows, &fill_page_);
    workspace->Add("shadow pages of rows to decompress", rows, &fill_shadow_page_);
    workspace->Add("slots of rows to decompress", rows, &fill_slot_);
  }
}

LayerBatch BatchBuffers::Gather(const std::vector<WorkItem*>& items, LayerKind kind,
                                kernels::Backend* backend) {
  LayerBatch batch;
  GatherAppend(items, kind, backend, &batch);
  GatherQuery(items, kind, backend, &batch);
  if (shadow_ != nullptr && kind == LayerKind::kGlobal) {
    GatherFill(items, backend, &batch);
  }
  batch.output = output_;
  return batch;
}

void BatchBuffers::UploadRows(const WorkItem& item, int64_t begin, int64_t end, float* x,
                              kernels::Backend* backend) const {
  const int64_t d = plan_.d_model;
  // Rows of earlier steps: held back in pages of the pool.
  const int64_t start = item.part().position;
  for (; begin < std::min(end, start); ++begin, x += d) {
    const PageList& held = item.draft->cache.held;
    backend->Copy(x, pool_ + held[begin / kHeldPageRows] + begin % kHeldPageRows * held_row_bytes_,
                  held_row_bytes_);
  }
  if (begin < end) {
    const float* rows = item.step().hidden.data() + (item.first_row + begin - start) * d;
    backend->Upload(x, rows, (end - begin) * d * static_cast<int64_t>(sizeof(float)));
  }
}

void BatchBuffers::UploadAngles(const RopeTable& rope, const std::vector<int64_t>& positions,
                                float* cos, float* sin, kernels::Backend* backend) {
  const int64_t half = rope.half();
  const auto count = static_cast<size_t>(half) * positions.size();
  cos_.resize(count);
  sin_.resize(count);
  for (size_t i = 0; i < positions.size(); ++i) {
    const size_t at = i * static_cast<size_t>(half);
    rope.Row(positions[i], cos_.data() + at, sin_.data() + at);
  }
  const auto bytes = static_cast<int64_t>(count * sizeof(float));
  backend->Upload(cos, cos_.data(), bytes);
  backend->Upload(sin, sin_.data(), bytes);
}

void BatchBuffers::GatherAppend(const std::vector<WorkItem*>& items, LayerKind kind,
                                kernels::Backend* backend, LayerBatch* batch) {
  const int64_t d = plan_.d_model;
  positions_.clear();
  pages_.clear();
  slots_.clear();
  for (const WorkItem* item : items) {
    const Chunk& chunk = item->chunk();
    const LayerCache& cache = item->draft->cache;
    UploadRows(*item, chunk.append_begin, chunk.append_end,
               append_x_ + static_cast<int64_t>(positions_.size()) * d, backend);
    for (int64_t row = chunk.append_begin; row < chunk.append_end; ++row) {
      positions_.push_back(row);
      pages_.push_back(cache.main[row / kPageTokens - cache.first_page]);
      slots_.push_back(static_cast<int32_t>(row % kPageTokens));
    }
  }
  const auto rows = static_cast<int64_t>(positions_.size());
  Check(rows <= max_rows_, "a batch appends at most max_batch_rows");
  batch->append_rows = rows;
  batch->append_x = append_x_;
  batch->append_cos = append_cos_;
  batch->append_sin = append_sin_;
  UploadAngles(kind == LayerKind::kLocal ? local_rope_ : global_rope_, positions_, append_cos_,
               append_sin_, backend);
  backend->Upload(page_, pages_.data(), rows * static_cast<int64_t>(sizeof(int64_t)));
  backend->Upload(slot_, slots_.data(), rows * static_cast<int64_t>(sizeof(int32_t)));
  flags_.assign(static_cast<size_t>(rows), 0);
  backend->Upload(not_finite_, flags_.data(), rows);
  batch->target = {pool_, cache_dtype_, page_, slot_, not_finite_, rows};
}

void BatchBuffers::GatherQuery(const std::vector<WorkItem*>& items, LayerKind kind,
                               kernels::Backend* backend, LayerBatch* batch) {
  const int64_t d = plan_.d_model;
  const bool same = SameRows(items);
  positions_.clear();
  lo_.clear();
  hi_.clear();
  sequences_.clear();
  for (const WorkItem* item : items) {
    const Chunk& chunk = item->chunk();
    const LayerCache& cache = item->draft->cache;
    const auto begin = static_cast<int64_t>(positions_.size());
    if (!same) {
      UploadRows(*item, chunk.query_begin, chunk.query_end, query_x_ + begin * d, backend);
    }
    for (int64_t row = chunk.query_begin; row < chunk.query_end; ++row) {
      const Interval visible =
          Visible(kind, row, item->draft->rules.prefix, item->draft->rules.window);
      positions_.push_back(row);
      lo_.push_back(visible.lo);
      hi_.push_back(visible.hi);
    }
    const auto rows = static_cast<int64_t>(positions_.size()) - begin;
    if (rows > 0) {
      sequences_.push_back({cache.main.offsets().data(), cache.first_page, begin, rows});
      const MlaForm form = kind == LayerKind::kGlobal ? FormOf(*item, plan_) : MlaForm::kExpanded;
      if (form == MlaForm::kShadow) {
        Check(batch->shadow_end == begin, "parts with shadows come first");
        sequences_.back().pages = cache.shadow->pages().data();
        batch->shadow_end = begin + rows;
      }
      if (form != MlaForm::kExpanded) {
        Check(batch->absorbed_end == begin, "absorbed parts come before expanded ones");
        batch->absorbed_end = begin + rows;
      }
    }
  }
  const auto rows = static_cast<int64_t>(positions_.size());
  Check(rows <= max_rows_, "a batch answers at most max_batch_rows");
  batch->query_rows = rows;
  batch->query_x = same ? append_x_ : query_x_;
  batch->query_cos = same ? append_cos_ : query_cos_;
  batch->query_sin = same ? append_sin_ : query_sin_;
  if (!same) {
    UploadAngles(kind == LayerKind::kLocal ? local_rope_ : global_rope_, positions_, query_cos_,
                 query_sin_, backend);
  }
  const double scale = kind == LayerKind::kLocal ? plan_.local.scale : plan_.global.scale;
  batch->attention = {
      pool_,      cache_dtype_, sequences_.data(),        static_cast<int64_t>(sequences_.size()),
      lo_.data(), hi_.data(),   static_cast<float>(scale)};
}

void BatchBuffers::GatherFill(const std::vector<WorkItem*>& items, kernels::Backend* backend,
                              LayerBatch* batch) {
  pages_.clear();
  shadow_pages_.clear();
  slots_.clear();
  for (const WorkItem* item : items) {
    const LayerCache& cache = item->draft->cache;
    const ShadowFill& fill = item->draft->shadow_fill;
    for (int64_t row = fill.begin; row < fill.end; ++row) {
      pages_.push_back(cache.main[row / kPageTokens - cache.first_page]);
      shadow_pages_.push_back(cache.shadow->pages()[static_cast<size_t>(row / kPageTokens)]);
      slots_.push_back(static_cast<int32_t>(row % kPageTokens));
    }
  }
  const auto rows = static_cast<int64_t>(pages_.size());
  Check(rows <= kShadowFillRows + max_rows_, "a batch decompresses a bounded number of rows");
  backend->Upload(fill_page_, pages_.data(), rows * static_cast<int64_t>(sizeof(int64_t)));
  backend->Upload(fill_shadow_page_, shadow_pages_.data(),
                  rows * static_cast<int64_t>(sizeof(int64_t)));
  backend->Upload(fill_slot_, slots_.data(), rows * static_cast<int64_t>(sizeof(int32_t)));
  batch->fill.pool = pool_;
  batch->fill.dtype = cache_dtype_;
  batch->fill.shadow = shadow_;
  batch->fill.page = fill_page_;
  batch->fill.shadow_page = fill_shadow_page_;
  batch->fill.slot = fill_slot_;
  batch->fill.rows = rows;
}

void BatchBuffers::Download(const std::vector<WorkItem*>& items, kernels::Backend* backend) {
  const int64_t d = plan_.d_model;
  backend->Download(flags_.data(), not_finite_, static_cast<int64_t>(flags_.size()));
  const float* from = output_;
  for (const WorkItem* item : items) {
    const Chunk& chunk = item->chunk();
    const int64_t rows = chunk.query_end - chunk.query_begin;
    if (rows > 0) {
      backend->Download(OutputRow(*item, chunk.query_begin, d), from,
                        rows * d * static_cast<int64_t>(sizeof(float)));
    }
    from += rows * d;
  }
}

void BatchBuffers::CheckFinite(const std::vector<WorkItem*>& items) const {
  auto flags = flags_.begin();
  for (WorkItem* item : items) {
    const Chunk& chunk = item->chunk();
    const int64_t rows = chunk.query_end - chunk.query_begin;
    const auto flags_end = flags + (chunk.append_end - chunk.append_begin);
    if (std::find(flags, flags_end, 1) != flags_end) {
      item->Fail(MakeError(Reason::kNotFinite, std::string("a key or value of hidden's rows is "
                                                           "not finite as ") +
                                                   DTypeName(cache_dtype_) +
                                                   ", the cache's dtype"));
    } else if (rows > 0 && !AllFinite(OutputRow(*item, chunk.query_begin, plan_.d_model),
                                      rows * plan_.d_model)) {
      item->Fail(MakeError(Reason::kNotFinite, "the attention of hidden's rows overflows float32"));
    }
    flags = flags_end;
  }
}

}  // namespace attnd
