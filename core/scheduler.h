// The queue of steps: order within a session, turns between connections, expiry.
//
// Per session everything runs in the order of acceptance: only the first part in a session's
// queue may run. Between connections turns go round (start-time fair queueing with a cost of
// one per step and chunk): a connection's next turn comes one after its last, but not before
// the turn that is being served, so that a flood delays others by about one batch and silence
// saves nothing up. A prefill takes a new turn for every chunk. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "core/batch.h"
#include "core/clock.h"
#include "core/work_item.h"

namespace attnd {

struct SchedulerLimits {
  int64_t max_batch_rows = 0;
  int64_t max_queue = 0;  // steps accepted and not finished
  ChunkLimits chunk;
};

class Scheduler {
 public:
  Scheduler(const LayerPlan& plan, const SchedulerLimits& limits, const Clock& clock)
      : plan_(plan), limits_(limits), clock_(clock) {}

  // What Enqueue() would refuse now, whatever the step: for callers who would rather know before
  // they prepare one.
  absl::Status CheckRoom() const;

  // QUEUE_FULL or DRAINING leave the step with the caller. Without `wake` the caller sees to it
  // that somebody runs it.
  absl::Status Enqueue(std::unique_ptr<Step>* step, bool wake = true);

  // The parts that run next, all of one layer. Before, fails what has expired, was cancelled or
  // lost its session. They are out of the queue until Return().
  std::vector<WorkItem*> NextBatch();
  // After they ran a chunk: finished ones leave, others take a new turn.
  void Return(const std::vector<WorkItem*>& items);
  // Steps whose parts are all finished; the caller answers them.
  std::vector<std::unique_ptr<Step>> TakeFinished();

  // Blocks until there is something to do, `deadline`, or Poke(). With the system's clock only.
  void Wait(MonotonicNs deadline);
  // Wakes Wait(), which looks for something to do.
  void Wake();
  // Wakes Wait(), which returns: there is something to do elsewhere.
  void WakeForJob();
  // Wakes Wait(), and has all queued parts looked at for cancellation, expiry and lost sessions.
  void Poke();

  // From now on Enqueue() refuses with DRAINING, and what is queued fails with it.
  void Stop();

  int64_t queued_steps() const;  // accepted, none of their parts started
  int64_t active_steps() const;  // accepted and not taken as finished

 private:
  // Of few parts, mostly of one: a deque makes two allocations for it, one of half a KiB.
  using Queue = std::vector<std::unique_ptr<WorkItem>>;

  absl::Status Room() const;  // under the lock
  uint64_t TakeTurn(uint64_t connection);
  // Fails what must not run any more; called when a look is due.
  void Sweep(MonotonicNs now);
  absl::Status Doomed(const WorkItem& item, MonotonicNs now) const;
  void FinishFront(Session* session);
  void FinishPart(const WorkItem& item);
  void Finish(ActiveStep* active);

  const LayerPlan& plan_;
  const SchedulerLimits limits_;
  const Clock& clock_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::unordered_map<Session*, Queue> queues_;
  std::vector<WorkItem*> ready_;  // first in their session's queue, not running
  std::unordered_map<uint64_t, uint64_t> next_turns_;  // of connections ahead of `turn_`
  uint64_t turn_ = 0;                                  // being served
  uint64_t order_ = 0;
  int64_t queued_ = 0;
  int64_t active_ = 0;
  MonotonicNs next_deadline_ = kNever;
  bool sweep_ = false;
  bool poked_ = false;
  bool stopped_ = false;
  std::vector<std::unique_ptr<Step>> finished_;
};

}  // namespace attnd
