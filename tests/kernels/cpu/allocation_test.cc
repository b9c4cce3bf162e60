// After Prepare() no operation allocates: operator new is counted, and the backend takes memory
// in no other way but AlignedArray, in Prepare() and Pack().
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/kernels/attention_case.h"

namespace {
std::atomic<int64_t> g_allocations{0};

void* Count(void* memory) {
  g_allocations.fetch_add(1);
  return memory;
}
}  // namespace

void* operator new(size_t size) { return Count(std::malloc(size == 0 ? 1 : size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  const size_t unit = static_cast<size_t>(alignment);
  return Count(std::aligned_alloc(unit, (size + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace attnd::kernels {
namespace {

TEST(AllocationTest, TheCounterCounts) {
  const int64_t before = g_allocations.load();
  const std::vector<float> something(1000);
  EXPECT_GT(g_allocations.load(), before) << something.size();
}

TEST(AllocationTest, LocalAttentionRunsInItsScratch) {
  auto backend = MakeBackend("best", 3);
  LocalCase c({6, 2, 20}, DType::kBF16, {RowsOf(5000, 5001, 0, 1 << 20), RowsOf(0, 100, 0, 70)}, 1);
  c.Store(*backend);
  std::vector<float> output = c.Run(*backend);  // prepares
  const LocalAttentionParams params = c.Params(output.data());
  const int64_t before = g_allocations.load();
  backend->LocalAttention(params);
  EXPECT_EQ(g_allocations.load(), before);
}

TEST(AllocationTest, GlobalAttentionAndProjectionsRunInTheirScratch) {
  auto backend = MakeBackend("best", 3);
  GlobalCase c({6, 2, 8, 4, 20}, DType::kF16, DType::kF32,
               {RowsOf(5000, 5001, 0, 0), RowsOf(0, 100, 0, 0)}, 2);
  c.Store(*backend);
  std::vector<float> output = c.RunExpanded(*backend);  // prepares
  const std::vector<float> query = c.LatentQuery(*backend);
  std::vector<float> latent(query.size());
  const ExpandedAttentionParams expanded = c.ExpandedParams(output.data(), -1);
  const LatentAttentionParams absorbed = c.LatentParams(query.data(), latent.data(), -1);
  const int64_t before = g_allocations.load();
  backend->ExpandedAttention(expanded);
  backend->LatentAttention(absorbed);
  EXPECT_EQ(g_allocations.load(), before);
}

TEST(AllocationTest, ProjectionRopeAndAppendAllocateNothing) {
  auto backend = MakeBackend("best", 3);
  ASSERT_TRUE(backend->Prepare({128, 1, 1}, nullptr, nullptr).ok());
  std::vector<float> weight(512 * 300, 1.0f), x(128 * 300, 1.0f), y(128 * 512);
  auto packed = backend->Pack({weight.data(), DType::kF32, 1, 512, 300, false});
  ASSERT_TRUE(packed.ok());
  std::vector<int64_t> page(128, 0);
  std::vector<int32_t> slot(128, 3);
  const int64_t page_bytes = 64 * (300 + 2 * 64) * 2;
  for (int64_t row = 0; row < 128; ++row) {
    page[static_cast<size_t>(row)] = row / 64 * page_bytes;
    slot[static_cast<size_t>(row)] = static_cast<int32_t>(row % 64);
  }
  std::vector<uint8_t> not_finite(128), pool(static_cast<size_t>(2 * page_bytes));
  const int64_t before = g_allocations.load();
  for (const int64_t rows : {int64_t{1}, int64_t{128}}) {
    backend->Project({packed->get(), rows, 1, x.data(), 300, 0, y.data(), 512, 0});
    backend->Rope({y.data(), x.data(), x.data(), rows, 8, 32});
    backend->AppendGlobal(
        {{2, 2, 8, 64, 300},
         {pool.data(), DType::kBF16, page.data(), slot.data(), not_finite.data(), rows},
         x.data(),
         y.data()});
  }
  EXPECT_EQ(g_allocations.load(), before);
}

}  // namespace
}  // namespace attnd::kernels
