// Where grouped-query attention reads and writes: pages beyond 4 GiB, splits in any number, and
// lengths that grow under recorded launches.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <vector>

#include "tests/kernels/cuda/gqa_case.h"

namespace attnd::kernels::cuda {
namespace {

constexpr GqaVariant kVariants[] = {GqaVariant::kDecode, GqaVariant::kPrefill};

TEST(GqaMemory, PagesBeyondFourGigabytes) {
  const GqaShape shape = {2, 2, 64, 0, 64};
  GqaCase c(shape, DType::kBF16, {RowsOf(128, 130, 0, 0)}, 1);
  c.Store();
  ASSERT_EQ(c.pool_pages(), 3);
  constexpr int64_t kBytes = int64_t{20} << 30;
  void* pool = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pool, MAP_FAILED);
  // Beyond what 31 and 32 bits hold of bytes, and 32 of elements.
  const int64_t page = c.page_bytes();
  c.MovePool(static_cast<uint8_t*>(pool),
             {(int64_t{3} << 30) / page * page, (int64_t{5} << 30) / page * page,
              (int64_t{19} << 30) / page * page});
  for (const GqaVariant& variant : kVariants) {
    GqaRun run;
    run.variant = &variant;
    Stream stream;
    EXPECT_TRUE(Close(c.Run(stream, run), c.Want(), 5e-3));
  }
  munmap(pool, kBytes);
}

// More splits than lanes of a warp, and more than pages.
TEST(GqaMemory, FortySplits) {
  const GqaShape shape = {1, 16, 16, 0, 8};
  GqaCase c(shape, DType::kF16, {RowsOf(2600, 2601, 0, 0), RowsOf(70, 71, 0, 0)}, 2);
  c.Store();
  GqaRun run;
  run.split_keys = 64;
  run.grid = 7;
  Stream stream;
  EXPECT_TRUE(Close(c.Run(stream, run), c.Want(), 1e-3));
}

// A step's launches are recorded at one length and run again at others, as a CUDA graph does.
TEST(GqaMemory, RecordedLaunchesFollowTheLengths) {
  constexpr int64_t kPages = 12;
  constexpr int32_t kWidth = 64;
  const int64_t page_bytes = 2 * 64 * kWidth * 2;
  // Key t is zero, value t is t: a row of zeros averages over what it sees.
  std::vector<uint16_t> pool(static_cast<size_t>(kPages * page_bytes / 2), 0xffff);
  std::vector<int64_t> pages;
  for (int64_t i = 0; i < kPages; ++i) {
    pages.push_back((kPages - 1 - i) * page_bytes);
  }
  SequenceView view;
  view.rows = 1;
  int64_t lo = 0, hi = 0;
  std::vector<float> query(kWidth, 0.0f), output(kWidth, kNoNumber);
  std::vector<int64_t> work_begin(2);
  int32_t split_keys = 0;
  std::vector<int32_t> arrivals(64);
  std::vector<float> partial(64 * 16 * (kWidth + 2), kNoNumber);
  GqaParams params;
  params.batch = {reinterpret_cast<const uint8_t*>(pool.data()), &view, pages.data(), &lo, &hi, 1};
  params.schedule = {work_begin.data(), &split_keys, arrivals.data(), partial.data(), 64};
  params.keys = {0, page_bytes, kWidth * 2};
  params.values = {page_bytes / 2, page_bytes, kWidth * 2};
  params.query = query.data();
  params.output = output.data();
  params.heads_kv = params.group = 1;
  params.content_width = params.value_width = kWidth;
  params.scale_log2 = 1;
  ScheduleParams schedule;
  schedule.sequences = &view;
  schedule.schedule = params.schedule;
  schedule.tiles = GqaTiles(params, GqaVariant::kDecode);
  schedule.num_sequences = 1;
  schedule.blocks = 8;
  Stream stream;
  stream.StartRecording();
  LaunchSchedule(stream, schedule);
  LaunchGqa(stream, GqaVariant::kDecode, DType::kBF16, params, 8);
  const auto recorded = stream.StopRecording();
  for (int64_t token = 0; token < kPages * 64; ++token) {
    uint16_t* slot =
        pool.data() + (pages[static_cast<size_t>(token / 64)] / 2) + token % 64 * kWidth;
    std::fill_n(slot, kWidth, uint16_t{0});
    std::fill_n(slot + 64 * kWidth, kWidth, ToBF16(static_cast<float>(token % 128)).bits);
    hi = view.key_end = token + 1;
    if (token % 61 != 0 && token + 1 != kPages * 64) {
      continue;
    }
    for (const auto& launch : recorded) {
      stream.Run(launch);
    }
    double want = 0;
    for (int64_t t = 0; t <= token; ++t) {
      want += static_cast<double>(t % 128) / static_cast<double>(token + 1);
    }
    for (const float got : output) {
      ASSERT_NEAR(got, want, 1e-4 * (1 + want)) << token;
    }
    EXPECT_EQ(work_begin[1], SplitCount(0, hi, split_keys));
  }
  EXPECT_GT(work_begin[1], 1);
}

}  // namespace
}  // namespace attnd::kernels::cuda
