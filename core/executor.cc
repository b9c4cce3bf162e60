#include "core/executor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "kernels/check.h"

namespace attnd {
absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(
    const LayerPlan& plan, std::vector<LayerWeights> weights, const ExecutorOptions& options,
    PagePool* pool, kernels::Backend* backend, const Clock& clock) {
  std::unique_ptr<Executor> executor(
      new Executor(plan, std::move(weights), options, pool, backend, clock));
  const bool local = plan.CountOf(LayerKind::kLocal) > 0;
  const bool global = plan.CountOf(LayerKind::kGlobal) > 0;
  executor->batch_.Count(&executor->workspace_);
  if (local) {
    CountBuffers(plan.local, options.max_batch_rows, &executor->workspace_, &executor->gqa_);
  }
  if (global) {
    CountBuffers(plan.global, options.max_batch_rows, &executor->workspace_, &executor->mla_);
  }
  if (absl::Status status = executor->workspace_.Bind(backend); !status.ok()) {
    return status;
  }
  const kernels::BatchLimits limits{options.max_batch_rows, options.max_batch_rows,
                                    plan.max_seq_len};
  if (absl::Status status = backend->Prepare(limits, local ? &plan.local.shape : nullptr,
                                             global ? &plan.global.shape : nullptr);
      !status.ok()) {
    return status;
  }
  return executor;
}

Executor::Executor(const LayerPlan& plan, std::vector<LayerWeights> weights,
                   const ExecutorOptions& options, PagePool* pool, kernels::Backend* backend,
                   const Clock& clock)
    : plan_(plan),
      weights_(std::move(weights)),
      pool_(pool),
      backend_(backend),
      shadows_(options.shadows),
      clock_(clock),
      batch_(plan, options.max_batch_rows, options.cache_dtype, pool->data(),
             plan.d_model * static_cast<int64_t>(sizeof(float)),
             shadows_ == nullptr ? nullptr : shadows_->data()) {}

BatchReport Executor::Run(const std::vector<WorkItem*>& items) {
  BatchReport report;
  const MonotonicNs start = clock_.Now();
  std::vector<WorkItem*> running;
  for (WorkItem* item : items) {
    if (item->is_operation()) {
      Operate(item);
      continue;
    }
    if (!item->draft.has_value()) {
      Begin(item);
      if (item->finished) {
        item->part().length = item->session().Length(item->step().layer);
      }
    }
    if (!item->finished) {
      GrowDraft(item->chunk(), &*item->draft);
      running.push_back(item);
      HoldRows(*item);
    }
  }
  if (!running.empty()) {
    Compute(running, &report);
    std::for_each(running.begin(), running.end(), [&](WorkItem* item) { Advance(item); });
  }
  report.compute_ns = clock_.Now() - start;
  const Step* previous = nullptr;  // parts of one step are neighbours
  for (const WorkItem* item : items) {
    Step& step = item->step();
    if (&step != previous) {
      step.timing.compute_ns += report.compute_ns;
      step.timing.batch_rows = report.rows();
    }
    previous = &step;
  }
  return report;
}

void Executor::Operate(WorkItem* item) {
  item->finished = true;
  item->part().status = item->step().operation(item->part().session);
}

void Executor::Begin(WorkItem* item) const {
  Step& step = item->step();
  const SequenceStep& part = item->part();
  if (step.kind == StepKind::kDecode && step.output.empty()) {
    step.output.resize(step.hidden.size());
  }
  const LayerRules rules = part.session->Rules(step.layer);
  LayerCache cache = part.session->Cache(step.layer);
  // After the look at its cache, which is empty when the session was closed before.
  if (absl::Status status = part.session->Open(); !status.ok()) {
    item->Fail(std::move(status));
    return;
  }
  const PositionLimits limits{plan_.max_seq_len, part.session->spec().max_tokens};
  if (absl::Status status = CheckPosition(cache, rules, step.kind, part, limits); !status.ok()) {
    item->Fail(std::move(status));
    return;
  }
  absl::StatusOr<Draft> draft =
      BeginDraft(std::move(cache), rules, {part.position, part.rows, step.output_rows}, item->plan,
                 part.session->account(), pool_, backend_);
  if (!draft.ok()) {
    item->Fail(draft.status());
    return;
  }
  item->draft.emplace(*std::move(draft));
  if (step.kind == StepKind::kPrefill) {
    step.output_position = item->plan.output_position;
    step.output.resize(static_cast<size_t>(item->plan.output_rows * plan_.d_model));
  }
}

// Rows of a prefix that is not complete yet: kept as they came, their queries are computed when
// the prefix is.
void Executor::HoldRows(const WorkItem& item) const {
  const Draft& draft = *item.draft;
  if (draft.step.end() >= draft.rules.prefix) {
    return;
  }
  const int64_t bytes = plan_.d_model * static_cast<int64_t>(sizeof(float));
  const float* row =
      item.step().hidden.data() +
      (item.first_row + item.chunk().append_begin - draft.step.position) * plan_.d_model;
  for (int64_t i = item.chunk().append_begin; i < item.chunk().append_end; ++i) {
    uint8_t* page = pool_->data() + draft.cache.held[i / kHeldPageRows];
    backend_->Upload(page + i % kHeldPageRows * bytes, row, bytes);
    row += plan_.d_model;
  }
}

void Executor::PlanShadows(const std::vector<WorkItem*>& items) const {
  if (shadows_ == nullptr) {
    return;
  }
  shadows_->BeginBatch();
  for (WorkItem* item : items) {
    std::shared_ptr<LayerShadow>& shadow = item->draft->cache.shadow;
    const Chunk& chunk = item->chunk();
    if (item->step().kind == StepKind::kDecode) {
      if (shadow == nullptr) {
        shadow = std::make_shared<LayerShadow>(shadows_);
      }
      item->draft->shadow_fill = shadows_->Plan(
          shadow.get(), {item->part().position, chunk.append_begin, chunk.append_end});
    } else if (shadow != nullptr) {
      ShadowStore::Cool(shadow.get());
    }
  }
}

void Executor::Compute(const std::vector<WorkItem*>& running, BatchReport* report) {
  std::vector<WorkItem*> items = running;
  const int64_t layer = items.front()->step().layer;
  const LayerKind kind = plan_.layers[static_cast<size_t>(layer)];
  const LayerWeights& weights = weights_[static_cast<size_t>(layer)];
  if (kind == LayerKind::kGlobal) {
    PlanShadows(items);
    std::stable_sort(items.begin(), items.end(), [&](const WorkItem* a, const WorkItem* b) {
      return FormOf(*a, plan_) < FormOf(*b, plan_);
    });
  }
  const LayerBatch batch = batch_.Gather(items, kind, backend_);
  backend_->BeginLayer(std::max(batch.append_rows, batch.query_rows));
  if (kind == LayerKind::kLocal) {
    RunGqaLayer(plan_.local, plan_.d_model, weights.gqa, batch, gqa_, backend_);
  } else {
    RunMlaLayer(plan_.global, plan_.d_model, weights.mla, batch, mla_, backend_);
  }
  backend_->EndLayer();
  batch_.Download(items, backend_);
  backend_->Synchronize();
  report->layer = layer;
  report->kind = kind;
  for (const WorkItem* item : items) {
    const bool prefill = item->step().kind == StepKind::kPrefill;
    const Chunk& chunk = item->chunk();
    (prefill ? report->prefill_rows : report->decode_rows) += chunk.rows();
    report->prefill_appended += prefill ? chunk.append_end - chunk.append_begin : 0;
  }
  batch_.CheckFinite(items);
}

void Executor::Advance(WorkItem* item) const {
  Step& step = item->step();
  SequenceStep& part = item->part();
  if (!item->finished) {
    ++item->next_chunk;
    if (item->next_chunk < item->plan.chunks.size()) {
      return;
    }
    FinishDraft(&*item->draft);
    if (step.kind == StepKind::kDecode && item->draft->cache.shadow != nullptr) {
      ShadowStore::Commit(item->draft->cache.shadow.get());
    }
    part.length = item->draft->cache.length;
    std::vector<std::pair<int64_t, LayerCache>> caches;
    caches.emplace_back(step.layer, std::move(item->draft->cache));
    // A session that was closed meanwhile has no use for the rows, but its step is answered.
    item->session().Commit(std::move(caches)).IgnoreError();
    item->draft.reset();
    item->finished = true;
    return;
  }
  part.length = item->session().Length(step.layer);
}

}  // namespace attnd
