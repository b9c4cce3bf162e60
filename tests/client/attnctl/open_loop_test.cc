// The load's loop, with a clock that the test moves: what a stall costs, what is dropped, who
// waits.
#include "client/attnctl/open_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "client/attnctl/steady_clock.h"
#include "client/cpp/error.h"

namespace attnd::attnctl {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;
const ArrivalOptions kHundredASecond = {ArrivalOptions::Kind::kConstant, 100, 1};

// Time passes while somebody sleeps or serves.
class HandClock final : public LoadClock {
 public:
  int64_t NowNs() override { return now_; }
  void SleepUntilNs(int64_t ns) override { now_ = woken_ ? now_ : std::max(now_, ns); }
  void Wake() override { woken_ = true; }
  void Pass(int64_t ns) { now_ += ns; }

 private:
  int64_t now_ = 0;
  bool woken_ = false;
};

// Serves the n-th request in the time, and with the status, that the test says.
class HandServer final : public LoadTarget {
 public:
  HandServer(HandClock* clock, int lanes, std::function<int64_t(int)> service_ns)
      : clock_(clock), lanes_(lanes), service_ns_(std::move(service_ns)) {}

  int lanes() const override { return lanes_; }
  absl::Status Send(int lane) override {
    lanes_used_.push_back(lane);
    const int n = sent_++;
    clock_->Pass(service_ns_(n));
    if (on_sent) {
      on_sent(n);
    }
    return statuses.count(n) > 0 ? statuses[n] : absl::OkStatus();
  }
  void Restore(int, const absl::Status&) override { clock_->Pass(restore_ns); }

  int sent() const { return sent_; }
  const std::vector<int>& lanes_used() const { return lanes_used_; }

  std::function<void(int)> on_sent;
  std::map<int, absl::Status> statuses;
  int64_t restore_ns = 0;

 private:
  HandClock* const clock_;
  const int lanes_;
  const std::function<int64_t(int)> service_ns_;
  int sent_ = 0;
  std::vector<int> lanes_used_;
};

LoadResult RunLoad(HandClock* clock, HandServer* server, int64_t begin_ns, int64_t end_ns,
                   int64_t interval_ns = 0) {
  LoadRecorder recorder(begin_ns, interval_ns);
  OpenLoop loop(kHundredASecond, begin_ns, end_ns, clock, server, &recorder);
  loop.Run(1);
  return recorder.Result();
}

TEST(OpenLoop, RequestsDueWhileTheServerStallsAreChargedFromWhenTheyWereDue) {
  HandClock clock;
  // 1 ms each, but the hundredth takes a second: 99 others are due meanwhile.
  HandServer server(&clock, 1, [](int n) { return n == 100 ? kSecond : kMs; });
  const LoadResult result = RunLoad(&clock, &server, 0, 10 * kSecond);
  EXPECT_EQ(result.counts.due, 1000);
  EXPECT_EQ(result.counts.answered, 1000);
  // The stalled one takes 1000 ms, the one due 10 ms after it 991, the next 982, and so on.
  std::vector<int64_t> expected;
  int64_t free_at = 0;
  for (int64_t n = 0; n < 1000; ++n) {
    const int64_t due = n * 10 * kMs;
    free_at = std::max(free_at, due) + (n == 100 ? kSecond : kMs);
    expected.push_back(free_at - due);
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(expected[989], 910 * kMs);
  EXPECT_EQ(result.latency.max_ns(), kSecond);
  for (const double q : {0.5, 0.9, 0.95, 0.99}) {
    const int64_t exact = expected[static_cast<size_t>(q * 1000) - 1];
    EXPECT_NEAR(static_cast<double>(result.latency.QuantileNs(q)), static_cast<double>(exact),
                static_cast<double>(exact) / 128)
        << q;
  }
  // From when they were sent only one was slow: this is what a closed loop would have said.
  EXPECT_LT(result.service.QuantileNs(0.99), 1.01 * kMs);
  EXPECT_EQ(result.service.max_ns(), kSecond);
  // Each makes up for 9 ms of the 999 that the first of them was behind.
  EXPECT_EQ(result.counts.late, 110);
}

TEST(OpenLoop, AFastServerIsNeverLateAndTheRateIsTheOneAskedFor) {
  HandClock clock;
  HandServer server(&clock, 3, [](int) { return kMs; });
  const LoadResult result = RunLoad(&clock, &server, 0, 5 * kSecond);
  EXPECT_EQ(result.counts.answered, 500);
  EXPECT_EQ(result.counts.late, 0);
  EXPECT_EQ(result.latency.max_ns(), kMs);
  EXPECT_EQ(result.AnsweredPerSecond(0, 5 * kSecond), 100);
  // Lanes take turns: no session rests for ever.
  EXPECT_EQ(std::vector<int>(server.lanes_used().begin(), server.lanes_used().begin() + 6),
            (std::vector<int>{0, 1, 2, 0, 1, 2}));
}

TEST(OpenLoop, BeyondTheServersRateTheRestIsUnstartedAndItsWaitCounts) {
  HandClock clock;
  HandServer server(&clock, 1, [](int) { return 40 * kMs; });
  const LoadResult result = RunLoad(&clock, &server, 0, 2 * kSecond);
  EXPECT_EQ(result.counts.due, 200);
  EXPECT_EQ(result.counts.answered, 50);
  EXPECT_EQ(result.counts.unstarted, 150);
  EXPECT_EQ(server.sent(), 50);
  EXPECT_EQ(result.AnsweredPerSecond(0, 2 * kSecond), 25);
  EXPECT_EQ(result.latency.count(), 200);
  EXPECT_EQ(result.service.count(), 50);
  // The last one answered was due at 490 ms; the first unstarted one at 500 ms had waited 1,500.
  EXPECT_EQ(result.latency.max_ns(), 1510 * kMs);
  EXPECT_NEAR(static_cast<double>(result.latency.QuantileNs(0.99)), 1490. * kMs, 1490. * kMs / 128);
}

TEST(OpenLoop, TheWarmUpIsNotCountedAndItsBacklogIsDropped) {
  HandClock clock;
  HandServer server(&clock, 1, [](int) { return 40 * kMs; });
  const LoadResult result = RunLoad(&clock, &server, kSecond, 2 * kSecond);
  EXPECT_EQ(server.sent(), 50);
  EXPECT_EQ(result.counts.due, 100);
  EXPECT_EQ(result.counts.answered, 25);
  EXPECT_EQ(result.counts.unstarted, 75);
  EXPECT_EQ(result.AnsweredPerSecond(kSecond, 2 * kSecond), 25);
}

TEST(OpenLoop, ALaneIsRestoredInNobodysTime) {
  HandClock clock;
  HandServer server(&clock, 1, [](int) { return kMs; });
  server.restore_ns = 2 * kMs;
  const LoadResult result = RunLoad(&clock, &server, 0, kSecond);
  EXPECT_EQ(result.latency.max_ns(), kMs);
  EXPECT_EQ(result.service.max_ns(), kMs);
}

TEST(OpenLoop, FailuresAreCountedByCodeAndReasonAndAreInNoPercentile) {
  HandClock clock;
  HandServer server(&clock, 1, [](int n) { return n < 3 ? 5 * kMs : kMs; });
  const absl::Status full =
      client::ToStatus({absl::StatusCode::kResourceExhausted, "CACHE_FULL", "full", std::nullopt});
  server.statuses = {{0, full}, {1, absl::DeadlineExceededError("late")}, {2, full}};
  const LoadResult result = RunLoad(&clock, &server, 0, kSecond);
  EXPECT_EQ(result.counts.failed, 3);
  EXPECT_EQ(result.counts.answered, 97);
  EXPECT_EQ(result.errors, (std::map<std::string, int64_t>{{"RESOURCE_EXHAUSTED CACHE_FULL", 2},
                                                           {"DEADLINE_EXCEEDED", 1}}));
  EXPECT_EQ(result.latency.max_ns(), kMs);
}

TEST(OpenLoop, StopEndsTheLoadAtThatMoment) {
  HandClock clock;
  HandServer server(&clock, 1, [](int) { return kMs; });
  LoadRecorder recorder(0, 0);
  OpenLoop loop(kHundredASecond, 0, 100 * kSecond, &clock, &server, &recorder);
  server.on_sent = [&](int n) {
    if (n == 9) {
      loop.Stop();
    }
  };
  loop.Run(1);
  EXPECT_EQ(server.sent(), 10);
  EXPECT_EQ(recorder.Result().counts.due, 10);
  EXPECT_EQ(recorder.Result().counts.unstarted, 0);
  EXPECT_EQ(loop.end_ns(), 91 * kMs);
}

TEST(OpenLoop, IntervalsHoldWhatWasDueInThem) {
  HandClock clock;
  HandServer server(&clock, 1, [](int n) { return n == 100 ? kSecond : kMs; });
  const LoadResult result = RunLoad(&clock, &server, 0, 4 * kSecond, kSecond);
  ASSERT_EQ(result.intervals.size(), 4U);
  EXPECT_EQ(result.intervals[0].latency.max_ns(), kMs);
  EXPECT_EQ(result.intervals[1].latency.max_ns(), kSecond);
  EXPECT_EQ(result.intervals[1].counts.late, 99);
  EXPECT_EQ(result.intervals[3].latency.max_ns(), kMs);
  for (const LoadInterval& interval : result.intervals) {
    EXPECT_EQ(interval.counts.due, 100);
  }
}

// Counts how many requests are under way, in real time.
class CountingTarget final : public LoadTarget {
 public:
  int lanes() const override { return 8; }
  absl::Status Send(int lane) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      EXPECT_TRUE(busy_.insert(lane).second) << "two requests in one lane";
      most_ = std::max(most_, busy_.size());
    }
    clock_.SleepUntilNs(clock_.NowNs() + 5 * kMs);
    const std::lock_guard<std::mutex> lock(mutex_);
    busy_.erase(lane);
    return absl::OkStatus();
  }
  void Restore(int, const absl::Status&) override {}
  size_t most() const { return most_; }

 private:
  SteadyClock clock_;
  std::mutex mutex_;
  std::set<int> busy_;
  size_t most_ = 0;
};

TEST(OpenLoop, AsManyRequestsAtATimeAsAskedForEachInALaneOfItsOwn) {
  CountingTarget target;
  SteadyClock clock;
  LoadRecorder recorder(0, 0);
  // 2,000 a second that take 5 ms: ten at a time, of whom four may.
  OpenLoop loop({ArrivalOptions::Kind::kConstant, 2000, 1}, 0, kSecond / 5, &clock, &target,
                &recorder);
  loop.Run(4);
  EXPECT_EQ(target.most(), 4U);
  const LoadCounts counts = recorder.Result().counts;
  EXPECT_EQ(counts.due, 400);
  EXPECT_GT(counts.unstarted, 0);
  EXPECT_EQ(counts.answered + counts.unstarted, 400);
}

}  // namespace
}  // namespace attnd::attnctl
