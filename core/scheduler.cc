#include "core/scheduler.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "core/error.h"
#include "kernels/check.h"

namespace attnd {
namespace {

// Advice to a client whose step found the queue full: a few batches later there is room.
constexpr int64_t kQueueFullRetryMs = 50;
// Connections whose next turn is remembered before those that fell behind are forgotten.
constexpr size_t kManyConnections = 1024;

}  // namespace

absl::Status Scheduler::Room() const {
  if (stopped_) {
    return MakeError(Reason::kDraining, "the server is shutting down");
  }
  if (queued_ >= limits_.max_queue) {
    return MakeRetryableError(
        Reason::kQueueFull,
        "there are " + std::to_string(queued_) + " steps waiting, as many as --max_queue allows",
        kQueueFullRetryMs);
  }
  return absl::OkStatus();
}

absl::Status Scheduler::CheckRoom() const {
  std::lock_guard lock(mutex_);
  return Room();
}

absl::Status Scheduler::Enqueue(std::unique_ptr<Step>* step, bool wake) {
  const auto active = std::make_shared<ActiveStep>();
  std::vector<std::unique_ptr<WorkItem>> items;
  Step& s = **step;
  int64_t row = 0;
  for (size_t i = 0; i < s.sequences.size(); ++i) {
    const SequenceStep& part = s.sequences[i];
    if (part.status.ok()) {
      auto item = std::make_unique<WorkItem>();
      item->active = active;
      item->sequence = i;
      item->first_row = row;
      if (s.kind != StepKind::kOperation) {
        item->plan = PlanStep(plan_, part.session->Rules(s.layer),
                              {part.position, part.rows, s.output_rows}, limits_.chunk);
      }
      items.push_back(std::move(item));
    }
    row += part.rows;
  }
  active->accepted = clock_.Now();
  active->unfinished = static_cast<int64_t>(items.size());

  std::lock_guard lock(mutex_);
  if (absl::Status status = Room(); !status.ok()) {
    return status;
  }
  active->step = std::move(*step);
  ++active_;
  if (items.empty()) {
    Finish(active.get());
    if (wake) {
      wake_.notify_one();
    }
    return absl::OkStatus();
  }
  ++queued_;
  next_deadline_ = std::min(next_deadline_, s.deadline);
  const uint64_t turn = TakeTurn(s.connection);
  for (auto& item : items) {
    item->turn = turn;
    item->order = order_++;
    item->session().Hold();
    WorkItem* const pointer = item.get();
    Queue& queue = queues_[&item->session()];
    queue.push_back(std::move(item));
    if (queue.size() == 1) {
      ready_.push_back(pointer);
    }
  }
  if (wake) {
    wake_.notify_one();
  }
  return absl::OkStatus();
}

uint64_t Scheduler::TakeTurn(uint64_t connection) {
  if (next_turns_.size() >= kManyConnections) {
    std::erase_if(next_turns_, [&](const auto& entry) { return entry.second <= turn_; });
  }
  uint64_t& next = next_turns_[connection];
  const uint64_t turn = std::max(next, turn_);
  next = turn + 1;
  return turn;
}

absl::Status Scheduler::Doomed(const WorkItem& item, MonotonicNs now) const {
  if (stopped_) {
    return MakeError(Reason::kDraining, "the server is shutting down");
  }
  if (item.step().cancelled->load(std::memory_order_relaxed)) {
    return MakeError(Reason::kStepCancelled, "the step was cancelled");
  }
  if (item.step().deadline <= now) {
    return MakeError(Reason::kStepTimeout, "the step's deadline passed before it was done");
  }
  // Close fails what is queued; what has begun is answered. An operation decides for itself what
  // it does with a session that moves.
  if (item.draft.has_value()) {
    return absl::OkStatus();
  }
  return item.is_operation() ? item.session().Alive() : item.session().Open();
}

void Scheduler::Sweep(MonotonicNs now) {
  sweep_ = false;
  next_deadline_ = kNever;
  ready_.clear();  // nothing runs now, so that the ready parts are the first of all queues
  for (auto it = queues_.begin(); it != queues_.end();) {
    Queue& queue = it->second;
    for (auto& item : queue) {
      if (absl::Status status = Doomed(*item, now); !status.ok()) {
        item->Fail(std::move(status));
        if (!item->is_operation()) {
          item->part().length = item->session().Length(item->step().layer);
        }
        FinishPart(*item);
      } else {
        next_deadline_ = std::min(next_deadline_, item->step().deadline);
      }
    }
    std::erase_if(queue, [](const auto& item) { return item->finished; });
    if (queue.empty()) {
      it = queues_.erase(it);
    } else {
      ready_.push_back(queue.front().get());
      ++it;
    }
  }
}

std::vector<WorkItem*> Scheduler::NextBatch() {
  std::lock_guard lock(mutex_);
  const MonotonicNs now = clock_.Now();
  if (sweep_ || next_deadline_ <= now) {
    Sweep(now);
  }
  std::vector<ReadyItem> items;
  items.reserve(ready_.size());
  for (const WorkItem* item : ready_) {
    const bool operation = item->is_operation();
    items.push_back({operation ? kAllLayers : item->step().layer, item->turn, item->order,
                     operation ? 0 : item->chunk().rows()});
  }
  std::vector<WorkItem*> batch;
  for (size_t i : FormBatch(items, limits_.max_batch_rows)) {
    batch.push_back(ready_[i]);
    ready_[i] = nullptr;
  }
  std::erase(ready_, nullptr);
  for (WorkItem* item : batch) {
    turn_ = std::max(turn_, batch.front()->turn);
    ActiveStep& active = *item->active;
    if (!active.started) {
      active.started = true;
      active.step->timing.queue_ns = now - active.accepted;
      --queued_;
    }
  }
  return batch;
}

void Scheduler::Return(const std::vector<WorkItem*>& items) {
  std::lock_guard lock(mutex_);
  for (WorkItem* item : items) {
    if (item->finished) {
      FinishFront(&item->session());
    } else {
      item->turn = TakeTurn(item->step().connection);
      ready_.push_back(item);
    }
  }
}

void Scheduler::FinishFront(Session* session) {
  const auto it = queues_.find(session);
  Check(it != queues_.end() && !it->second.empty(), "a running part is in its session's queue");
  // The part holds the session, so that it is there until after the queue has let go of it.
  const std::unique_ptr<WorkItem> item = std::move(it->second.front());
  it->second.erase(it->second.begin());
  if (it->second.empty()) {
    queues_.erase(it);
  } else {
    ready_.push_back(it->second.front().get());
  }
  FinishPart(*item);
}

void Scheduler::FinishPart(const WorkItem& item) {
  item.session().Unhold(clock_.Now());
  ActiveStep& active = *item.active;
  if (--active.unfinished > 0) {
    return;
  }
  if (!active.started) {
    active.step->timing.queue_ns = clock_.Now() - active.accepted;
    --queued_;
  }
  Finish(&active);
}

void Scheduler::Finish(ActiveStep* active) {
  Step& step = *active->step;
  if (step.kind == StepKind::kDecode && step.output.empty()) {
    // No part has begun. In the memory of the rows: no more of it may be wanting here.
    step.output = std::move(step.hidden);
    std::fill(step.output.begin(), step.output.end(), 0.0F);
  }
  finished_.push_back(std::move(active->step));
}

std::vector<std::unique_ptr<Step>> Scheduler::TakeFinished() {
  std::lock_guard lock(mutex_);
  active_ -= static_cast<int64_t>(finished_.size());
  return std::exchange(finished_, {});
}

void Scheduler::Wait(MonotonicNs deadline) {
  std::unique_lock lock(mutex_);
  const auto due = [&] { return poked_ || stopped_ || !ready_.empty() || !finished_.empty(); };
  while (!due()) {
    const MonotonicNs until = std::min(deadline, next_deadline_);
    if (until == kNever) {
      wake_.wait(lock);
    } else if (until <= clock_.Now()) {
      return;
    } else {
      wake_.wait_until(lock,
                       std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until)));
    }
  }
  // By whoever waits: a round on a caller's thread may leave jobs, and knows no new deadline.
  poked_ = false;
}

void Scheduler::Wake() {
  std::lock_guard lock(mutex_);
  wake_.notify_one();
}

void Scheduler::WakeForJob() {
  std::lock_guard lock(mutex_);
  poked_ = true;
  wake_.notify_one();
}

void Scheduler::Poke() {
  std::lock_guard lock(mutex_);
  sweep_ = true;
  poked_ = true;
  wake_.notify_one();
}

void Scheduler::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  sweep_ = true;
  wake_.notify_one();
}

int64_t Scheduler::queued_steps() const {
  std::lock_guard lock(mutex_);
  return queued_;
}

int64_t Scheduler::active_steps() const {
  std::lock_guard lock(mutex_);
  return active_;
}

}  // namespace attnd
