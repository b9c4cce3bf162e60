// A stream's lease on its peer: ends after a wait, not before, and never after the stream is gone.
#include "server/peer_lease.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace attnd::server {
namespace {

using std::chrono::milliseconds;

class PeerLeaseTest : public testing::Test {
 protected:
  static constexpr int64_t kMs = 1'000'000;

  bool EndsWithin(milliseconds limit) const {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (calls_ == 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return calls_ > 0;
  }
  std::function<bool()> Counted(bool ends = true) {
    return [this, ends] {
      ++calls_;
      return ends;
    };
  }

  SystemClock clock_;
  std::atomic<int> calls_{0};
};

TEST_F(PeerLeaseTest, EndsOnceThePeerHasBeenWaitedForSoLong) {
  PeerLease lease(clock_, 30 * kMs, Counted());
  const MonotonicNs began = clock_.Now();
  lease.Wait();
  ASSERT_TRUE(EndsWithin(milliseconds(10'000)));
  EXPECT_GE(clock_.Now() - began, 30 * kMs);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(calls_, 1);
}

TEST_F(PeerLeaseTest, APeerThatMovedIsNotWaitedFor) {
  PeerLease lease(clock_, 10 * kMs, Counted());
  EXPECT_FALSE(EndsWithin(milliseconds(60))) << "nobody waits yet";
  lease.Wait();
  lease.Moved();
  EXPECT_FALSE(lease.waiting());
  EXPECT_FALSE(EndsWithin(milliseconds(60)));
  lease.Wait();
  EXPECT_TRUE(EndsWithin(milliseconds(10'000)));
}

TEST_F(PeerLeaseTest, WaitsAddUpUntilItIsRenewed) {
  PeerLease renewed(clock_, 200 * kMs, Counted());
  for (int i = 0; i < 40; ++i) {
    renewed.Wait();
    std::this_thread::sleep_for(milliseconds(10));
    renewed.Moved();
    renewed.Renew();
  }
  EXPECT_EQ(calls_, 0);
  PeerLease lease(clock_, 200 * kMs, Counted());
  for (int i = 0; i < 1000 && calls_ == 0; ++i) {
    lease.Wait();
    std::this_thread::sleep_for(milliseconds(10));
    if (calls_ == 0) {
      lease.Moved();
    }
  }
  EXPECT_EQ(calls_, 1);
}

TEST_F(PeerLeaseTest, GoesOnWhereThePeerHasJustMoved) {
  PeerLease lease(clock_, 5 * kMs, Counted(false));
  lease.Wait();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (calls_ < 3 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GE(calls_, 3);
}

TEST_F(PeerLeaseTest, IsSilentOnceItIsGone) {
  for (int i = 0; i < 300; ++i) {
    std::atomic<bool> gone = false;
    {
      PeerLease lease(clock_, 100'000, [&gone] {
        EXPECT_FALSE(gone);
        return false;
      });
      lease.Wait();
      std::this_thread::sleep_for(std::chrono::microseconds(37 * (i % 9)));
    }
    gone = true;
  }
}

}  // namespace
}  // namespace attnd::server
