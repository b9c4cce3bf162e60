// The pool's accounting under random operations, its promises, and its return of memory.
#include "core/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "core/error.h"

namespace attnd {
namespace {

// Memory that remembers what was discarded.
class FakeMemory final : public kernels::DeviceMemory {
 public:
  explicit FakeMemory(int64_t bytes) : data_(static_cast<size_t>(bytes)) {}
  uint8_t* data() override { return data_.data(); }
  int64_t bytes() const override { return static_cast<int64_t>(data_.size()); }
  void Discard(int64_t, int64_t bytes) override { discarded_ += bytes; }
  int64_t discarded() const { return discarded_; }

 private:
  std::vector<uint8_t> data_;
  int64_t discarded_ = 0;
};

constexpr PerKind kPageBytes = {65536, 196608, 40960};  // 16, 5 and 25 pages a slab
constexpr int64_t kSlabs = 12;

class PagePoolTest : public testing::Test {
 protected:
  int64_t Used() const {
    const PoolStats stats = pool_.stats();
    return stats.used_bytes[0] + stats.used_bytes[1] + stats.used_bytes[2];
  }

  FakeMemory memory_{kSlabs * kMinSlabBytes};
  PagePool pool_{&memory_, kPageBytes};
  Account account_;
  Account promised_;  // outlives the lists, as an account must
  std::array<PageList, kNumPageKinds> lists_;
};

TEST_F(PagePoolTest, TakesAllOrNothing) {
  ASSERT_TRUE(pool_.Take(&account_, {16 * 11, 5, 0}, &lists_).ok());
  std::array<PageList, kNumPageKinds> more;
  const absl::Status full = pool_.Take(&account_, {0, 0, 1}, &more);
  EXPECT_EQ(ReasonOf(full), Reason::kCacheFull);
  EXPECT_GT(RetryAfterMs(full).value_or(0), 0);
  EXPECT_TRUE(more[2].empty());
  EXPECT_EQ(Used(), 16 * 11 * kPageBytes[0] + 5 * kPageBytes[1]);
  pool_.Audit();
  lists_ = {};
  EXPECT_EQ(Used(), 0);
  pool_.Audit();
}

TEST_F(PagePoolTest, NeitherKindStarvesWhileTheOtherHasRoom) {
  ASSERT_TRUE(pool_.Take(&account_, {16 * 12, 0, 0}, &lists_).ok());
  std::array<PageList, kNumPageKinds> local;
  EXPECT_FALSE(pool_.Take(&account_, {0, 1, 0}, &local).ok());
  lists_[0].Truncate(16 * 11);  // a whole slab returns and serves the other kind
  EXPECT_TRUE(pool_.Take(&account_, {0, 5, 0}, &local).ok());
  EXPECT_FALSE(pool_.Take(&account_, {0, 1, 0}, &local).ok());
}

TEST_F(PagePoolTest, PromisedPagesAreThereWhenEverythingElseIsTaken) {
  ASSERT_TRUE(pool_.Promise(&promised_, {20, 7, 0}).ok());
  // 20 global pages need 2 slabs, 7 local ones 2: 8 slabs are left for others.
  ASSERT_TRUE(pool_.Take(&account_, {16 * 8, 0, 0}, &lists_).ok());
  pool_.Audit();
  std::array<PageList, kNumPageKinds> more;
  // Slabs held ready for the promise have room beside it: 12 more global pages, 3 local ones.
  EXPECT_TRUE(pool_.Take(&account_, {12, 3, 0}, &more).ok());
  std::array<PageList, kNumPageKinds> none;
  EXPECT_FALSE(pool_.Take(&account_, {1, 0, 0}, &none).ok());
  EXPECT_FALSE(pool_.Take(&account_, {0, 1, 0}, &none).ok());
  std::array<PageList, kNumPageKinds> own;
  EXPECT_TRUE(pool_.Take(&promised_, {20, 7, 0}, &own).ok());
  pool_.Audit();
  EXPECT_EQ(pool_.UnusedPromiseBytes(promised_), 0);
  own[0].Truncate(5);  // what a reserved session frees is promised to it again
  EXPECT_EQ(pool_.UnusedPromiseBytes(promised_), 15 * kPageBytes[0]);
  EXPECT_FALSE(pool_.Take(&account_, {1, 0, 0}, &none).ok());
  own = {};
  ASSERT_TRUE(pool_.Promise(&promised_, {}).ok());
  EXPECT_TRUE(pool_.Take(&account_, {1, 0, 0}, &none).ok());
  pool_.Audit();
}

TEST_F(PagePoolTest, RefusesAPromiseThatItCannotKeep) {
  EXPECT_EQ(ReasonOf(pool_.Promise(&promised_, {16 * 12 + 1, 0, 0})), Reason::kCacheFull);
  EXPECT_TRUE(pool_.Promise(&promised_, {16 * 12, 0, 0}).ok());
  Account other;
  EXPECT_FALSE(pool_.Promise(&other, {0, 0, 1}).ok());
  ASSERT_TRUE(pool_.Promise(&promised_, {}).ok());
}

TEST_F(PagePoolTest, SharedPagesAreFreedByTheLastOwner) {
  ASSERT_TRUE(pool_.Take(&account_, {4, 0, 0}, &lists_).ok());
  PageList copy = lists_[0];
  PageList slice = lists_[0].Slice(1, 3);
  lists_[0].Truncate(0);
  EXPECT_EQ(Used(), 4 * kPageBytes[0]);
  copy.Truncate(0);
  EXPECT_EQ(Used(), 2 * kPageBytes[0]);
  slice.DropFront(1);
  EXPECT_EQ(Used(), kPageBytes[0]);
  slice = PageList();
  EXPECT_EQ(Used(), 0);
  pool_.Audit();
}

TEST_F(PagePoolTest, APageThatSeveralHoldIsCountedOnce) {
  Account other;
  ASSERT_TRUE(pool_.Take(&account_, {4, 0, 0}, &lists_).ok());
  std::vector<PageList> shared = *pool_.Share({&lists_[0]}, &other);
  EXPECT_EQ(Used(), 4 * kPageBytes[0]);
  EXPECT_TRUE(pool_.HeldByOthers(lists_[0][0], &account_));
  EXPECT_TRUE(pool_.HeldByOthers(lists_[0][0], &other));
  EXPECT_EQ(account_.used[0] + other.used[0], 4);
  pool_.Audit();
  lists_[0].Truncate(1);
  EXPECT_EQ(account_.used[0] + other.used[0], 4);
  EXPECT_FALSE(pool_.HeldByOthers(shared[0][1], &other));
  pool_.Audit();
  shared.clear();
  EXPECT_EQ(other.used, PerKind{});
  EXPECT_EQ(Used(), kPageBytes[0]);
  pool_.Audit();
}

TEST_F(PagePoolTest, APromiseHoldsWhoeverKeepsItsPages) {
  Account second;
  ASSERT_TRUE(pool_.Promise(&promised_, {16 * 5, 0, 0}).ok());
  ASSERT_TRUE(pool_.Take(&promised_, {16 * 5, 0, 0}, &lists_).ok());
  // Who has no promise takes over what they share: the promise then needs as much once more.
  std::vector<PageList> shared = *pool_.Share({&lists_[0]}, &account_);
  EXPECT_EQ(pool_.UnusedPromiseBytes(promised_), 16 * 5 * kPageBytes[0]);
  ASSERT_TRUE(pool_.Promise(&second, {16 * 2, 0, 0}).ok());
  std::array<PageList, kNumPageKinds> more;
  ASSERT_TRUE(pool_.Take(&second, {16 * 2, 0, 0}, &more).ok());
  EXPECT_EQ(ReasonOf(pool_.Share({&more[0]}, &account_).status()), Reason::kCacheFull);
  EXPECT_TRUE(pool_.Share({&more[0]}, &promised_).ok());  // of two promises one covers it
  lists_ = {};
  pool_.Audit();
  EXPECT_TRUE(pool_.Take(&promised_, {16 * 5, 0, 0}, &lists_).ok());
  pool_.Audit();
}

TEST_F(PagePoolTest, AsksForRoomOnlyWhereRoomCanBeHad) {
  std::vector<int64_t> asked;
  pool_.SetReliever([&](int64_t bytes) {
    asked.push_back(bytes);
    const bool any = !lists_[0].empty();
    lists_[0].Truncate(std::max<int64_t>(0, lists_[0].size() - 16));
    return any;
  });
  ASSERT_TRUE(pool_.Promise(&promised_, {0, 5 * 4, 0}).ok());
  ASSERT_TRUE(pool_.Take(&account_, {16 * 8, 0, 0}, &lists_).ok());
  Account taker;
  std::array<PageList, kNumPageKinds> taken;
  EXPECT_FALSE(pool_.Take(&taker, {16 * 8 + 1, 0, 0}, &taken).ok());
  EXPECT_TRUE(asked.empty());  // the promise leaves no more than 8 slabs to anybody
  EXPECT_TRUE(pool_.Take(&taker, {0, 0, 60}, &taken).ok());
  EXPECT_EQ(asked, std::vector<int64_t>(3, 60 * kPageBytes[2]));
  EXPECT_TRUE(pool_.Promise(&taker, {0, 5 * 5, 60}).ok());
  EXPECT_EQ(asked.size(), 8U);
}

TEST_F(PagePoolTest, ReturnsTheMemoryOfEmptySlabsOnce) {
  ASSERT_TRUE(pool_.Take(&account_, {16 * 3, 0, 0}, &lists_).ok());
  EXPECT_EQ(pool_.Trim(9), 0);
  lists_ = {};
  EXPECT_EQ(pool_.Trim(2), 2 * kMinSlabBytes);
  EXPECT_EQ(pool_.Trim(2), kMinSlabBytes);
  EXPECT_EQ(memory_.discarded(), 3 * kMinSlabBytes);
  EXPECT_EQ(pool_.Trim(2), 0);
}

TEST_F(PagePoolTest, SlabsThatAreUsedAgainAreReturnedAgain) {
  for (int64_t slabs : {3, 2, 4}) {
    ASSERT_TRUE(pool_.Take(&account_, {16 * slabs, 0, 0}, &lists_).ok());
    lists_ = {};
    EXPECT_EQ(pool_.Trim(1), kMinSlabBytes);
    ASSERT_TRUE(pool_.Take(&account_, {16 * slabs, 0, 0}, &lists_).ok());
    lists_ = {};
    EXPECT_EQ(pool_.Trim(9), slabs * kMinSlabBytes);
    EXPECT_EQ(pool_.Trim(9), 0);
  }
}

TEST_F(PagePoolTest, TheLeastMemoryIsASlabAKind) {
  EXPECT_EQ(PagePool::LeastBytes({1000, 0, 500}), 2 * kMinSlabBytes);
  EXPECT_EQ(PagePool::LeastBytes({1000, 3 << 20, 500}), 3 * (int64_t{3} << 20));
}

TEST_F(PagePoolTest, PagesOfASlabDoNotOverlap) {
  ASSERT_TRUE(pool_.Take(&account_, {33, 11, 51}, &lists_).ok());
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int kind = 0; kind < kNumPageKinds; ++kind) {
    for (int64_t offset : lists_[kind].offsets()) {
      ranges.emplace_back(offset, offset + kPageBytes[kind]);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    EXPECT_LE(ranges[i - 1].second, ranges[i].first);
  }
  EXPECT_LE(ranges.back().second, memory_.bytes());
}

// 10^5 random operations of many owners: free + used = capacity after every one.
TEST_F(PagePoolTest, AccountsExactlyUnderRandomOperations) {
  const auto seed = static_cast<uint32_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  constexpr size_t kOwners = 24;
  std::vector<Account> accounts(kOwners);
  std::vector<std::array<PageList, kNumPageKinds>> owned(kOwners);
  int64_t refused = 0;
  for (int i = 0; i < 100'000; ++i) {
    const auto owner = static_cast<size_t>(pick(kOwners));
    auto& list = owned[owner][static_cast<size_t>(pick(kNumPageKinds))];
    switch (pick(6)) {
      case 0:
      case 1: {
        std::array<PageList, kNumPageKinds> taken;
        const PerKind counts = {pick(9), pick(4), pick(6)};
        const Account& account = accounts[owner];
        bool promised = true;
        for (int kind = 0; kind < kNumPageKinds; ++kind) {
          promised &= account.used[kind] + counts[kind] <= account.promised[kind];
        }
        const bool ok = pool_.Take(&accounts[owner], counts, &taken).ok();
        ASSERT_TRUE(ok || !promised);
        refused += ok ? 0 : 1;
        for (int kind = 0; kind < kNumPageKinds; ++kind) {
          auto& mine = owned[owner][static_cast<size_t>(kind)];
          mine.Append(&taken[static_cast<size_t>(kind)], taken[static_cast<size_t>(kind)].size());
        }
        break;
      }
      case 2:
        list.Truncate(list.size() - pick(list.size() + 1));
        break;
      case 3:
        list.DropFront(pick(list.size() + 1));
        break;
      case 4: {
        const PageList shared = list;  // as a fork or a running step does
        list.Truncate(list.size() / 2);
        list = shared;
        break;
      }
      default: {
        const PerKind promise = {pick(20), pick(6), pick(10)};
        pool_.Promise(&accounts[owner], pick(2) == 0 ? promise : PerKind{}).IgnoreError();
        break;
      }
    }
    pool_.Audit();
    if (pick(200) == 0) {
      pool_.Trim(3);
    }
  }
  EXPECT_GT(refused, 1000) << "the pool was never full";
  owned.clear();
  for (Account& account : accounts) {
    ASSERT_TRUE(pool_.Promise(&account, {}).ok());
    EXPECT_EQ(account.used, PerKind{});
  }
  pool_.Audit();
  EXPECT_EQ(Used(), 0);
}

}  // namespace
}  // namespace attnd
