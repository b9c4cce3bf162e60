// Requests sent when they are due, by threads that take the next one.
#include "client/attnctl/open_loop.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace attnd::attnctl {

OpenLoop::OpenLoop(const ArrivalOptions& arrivals, int64_t begin_ns, int64_t end_ns,
                   LoadClock* clock, LoadTarget* target, LoadRecorder* recorder)
    : clock_(clock),
      target_(target),
      recorder_(recorder),
      begin_ns_(begin_ns),
      end_ns_(end_ns),
      arrivals_(arrivals) {
  for (int lane = 0; lane < target_->lanes(); ++lane) {
    rested_.push_back(lane);
  }
}

void OpenLoop::Run(int concurrency) {
  std::vector<std::thread> threads;
  // A lane for each of them, or one would find none free.
  for (int i = 1; i < std::min(concurrency, target_->lanes()); ++i) {
    threads.emplace_back([this] { Work(); });
  }
  Work();
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void OpenLoop::Stop() {
  end_ns_ = std::min<int64_t>(end_ns_, clock_->NowNs());
  clock_->Wake();
}

void OpenLoop::Work() {
  for (Claim claim; Take(&claim);) {
    SendOne(claim);
    const std::lock_guard<std::mutex> lock(mutex_);
    rested_.push_back(claim.lane);
  }
}

bool OpenLoop::Take(Claim* claim) {
  const std::lock_guard<std::mutex> lock(mutex_);
  claim->due_ns = arrivals_.NextNs();
  if (claim->due_ns >= end_ns_) {
    return false;
  }
  claim->lane = rested_.front();
  rested_.pop_front();
  return true;
}

void OpenLoop::SendOne(const Claim& claim) {
  clock_->SleepUntilNs(claim.due_ns);
  LoadAttempt attempt;
  attempt.due_ns = claim.due_ns;
  attempt.start_ns = clock_->NowNs();
  if (attempt.due_ns < begin_ns_ && attempt.start_ns >= begin_ns_) {
    return;
  }
  const int64_t end_ns = end_ns_;
  if (attempt.start_ns >= end_ns) {
    if (claim.due_ns < end_ns) {
      recorder_->AddUnstarted(claim.due_ns, attempt.start_ns);
    }
    return;
  }
  attempt.status = target_->Send(claim.lane);
  attempt.end_ns = clock_->NowNs();
  recorder_->Add(attempt);
  target_->Restore(claim.lane, attempt.status);
}

}  // namespace attnd::attnctl
