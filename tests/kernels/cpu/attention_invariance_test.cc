// The bits of a row depend on that row alone: not on the batch, not on the threads.
#include <gtest/gtest.h>

#include "tests/kernels/attention_case.h"

namespace attnd::kernels {
namespace {

class AttentionInvarianceTest : public ::testing::TestWithParam<std::string> {};

std::vector<Intervals> Ragged(int64_t window) {
  return {RowsOf(2999, 3000, 0, window), RowsOf(0, 1, 0, window), RowsOf(100, 200, 0, window),
          RowsOf(700, 702, 0, window), RowsOf(64, 65, 0, window)};
}

TEST_P(AttentionInvarianceTest, LocalRowsAloneAndInABatch) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kInt8}) {
    for (const int64_t window : {130, 1 << 20}) {
      LocalCase c({6, 2, 20}, dtype, Ragged(window), 1);
      auto one = MakeBackend(GetParam(), 1);
      c.Store(*one);
      const std::vector<float> batch = c.Run(*one);
      for (const int threads : {1, 2, 3}) {
        auto backend = MakeBackend(GetParam(), threads);
        EXPECT_TRUE(SameBits(c.Run(*backend), batch)) << threads << " threads";
        // Sequence by sequence into one array: rows keep their places.
        std::vector<float> alone(batch.size(), kNoNumber);
        for (int64_t s = 0; s < 5; ++s) {
          backend->LocalAttention(c.Params(alone.data(), s));
        }
        EXPECT_TRUE(SameBits(alone, batch)) << threads << " threads, alone";
      }
    }
  }
}

TEST_P(AttentionInvarianceTest, LatentAndExpandedRowsAloneAndInABatch) {
  for (const DType dtype : {DType::kBF16, DType::kInt8}) {
    GlobalCase c({6, 2, 8, 4, 20}, dtype, DType::kF32, Ragged(0), 2);
    auto one = MakeBackend(GetParam(), 1);
    c.Store(*one);
    const std::vector<float> latent = c.RunLatent(*one);
    const std::vector<float> expanded = c.RunExpanded(*one);
    for (const int threads : {1, 2, 3}) {
      auto backend = MakeBackend(GetParam(), threads);
      EXPECT_TRUE(SameBits(c.RunLatent(*backend), latent)) << threads << " threads";
      EXPECT_TRUE(SameBits(c.RunExpanded(*backend), expanded)) << threads << " threads";
      const std::vector<float> query = c.LatentQuery(*backend);
      std::vector<float> alone_latent(latent.size(), kNoNumber);
      std::vector<float> alone_expanded(expanded.size(), kNoNumber);
      for (int64_t s = 0; s < 5; ++s) {
        backend->LatentAttention(c.LatentParams(query.data(), alone_latent.data(), s));
        backend->ExpandedAttention(c.ExpandedParams(alone_expanded.data(), s));
      }
      EXPECT_TRUE(SameBits(alone_latent, latent)) << threads << " threads, alone";
      EXPECT_TRUE(SameBits(alone_expanded, expanded)) << threads << " threads, alone";
    }
  }
}

// A chunk's rows tile differently when the chunk begins elsewhere.
TEST_P(AttentionInvarianceTest, RowsInAnyChunk) {
  LocalCase whole({6, 2, 16}, DType::kF32, {RowsOf(0, 150, 0, 70)}, 3);
  auto backend = MakeBackend(GetParam(), 2);
  whole.Store(*backend);
  const std::vector<float> want = whole.Run(*backend);
  for (const int64_t chunk : {1, 7, 64, 149}) {
    std::vector<float> got(want.size(), kNoNumber);
    for (int64_t begin = 0; begin < 150; begin += chunk) {
      LocalAttentionParams params = whole.Params(got.data());
      AttentionSequence rows = params.batch.sequences[0];
      rows.row_begin = begin;
      rows.rows = std::min<int64_t>(chunk, 150 - begin);
      params.batch.sequences = &rows;
      backend->LocalAttention(params);
    }
    EXPECT_TRUE(SameBits(got, want)) << "chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionInvarianceTest, ::testing::ValuesIn(CpuIsas()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace attnd::kernels
