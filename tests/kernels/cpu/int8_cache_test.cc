// An int8 cache through append and attention: what it costs against the data as it was.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "kernels/cache_layout.h"
#include "tests/kernels/attention_case.h"

namespace attnd::kernels {
namespace {

// README.md: of an element and its row's maximum, and of the output in the Frobenius norm.
constexpr double kElement = 1.0 / 254 + 0x1p-23;
constexpr double kOutput = 1e-2;

double RelativeError(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

class Int8CacheTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend_ = MakeBackend(GetParam(), 2);
};

// With M_k and M_v the largest |key| and |value| that a row sees, a score is off by at most
// d = scale * |q|_1 * M_k / 254, hence a weight by a factor within exp(2 d), and the output by
// M_v (1/254 + exp(2 d) - 1).
TEST_P(Int8CacheTest, LocalOutputsAreWithinTheBoundOfTheUnroundedData) {
  const LocalShape shape{16, 2, 64};
  const int64_t rows = 5;
  const int64_t history = 900;
  LocalCase c(shape, DType::kInt8, {RowsOf(history, history + rows, 0, 1 << 20)}, 11);
  const std::vector<double> want = c.Want();
  double key_max = 0;
  double value_max = 0;
  for (int64_t token = 0; token < history + rows; ++token) {
    for (int64_t k = 0; k < shape.heads_kv * shape.d_head; ++k) {
      key_max = std::max(key_max, std::abs(double{c.Key(0, token, 0)[k]}));
      value_max = std::max(value_max, std::abs(double{c.Value(0, token, 0)[k]}));
    }
  }
  c.Store(*backend_);
  const std::vector<float> got = c.Run(*backend_);
  for (int64_t head = 0; head < rows * shape.heads_q; ++head) {
    double query = 0;
    for (int64_t k = 0; k < shape.d_head; ++k) {
      query += std::abs(double{c.query()[static_cast<size_t>(head * shape.d_head + k)]});
    }
    const double score = c.scale * query * key_max * kElement;
    const double bound = value_max * (kElement + std::expm1(2 * score) + 1e-6);
    for (int64_t k = 0; k < shape.d_head; ++k) {
      const auto i = static_cast<size_t>(head * shape.d_head + k);
      ASSERT_LE(std::abs(got[i] - want[i]), bound) << head << ", " << k;
    }
  }
}

TEST_P(Int8CacheTest, OutputsInTheFrobeniusNorm) {
  double local = 0;
  double expanded = 0;
  double absorbed = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    LocalCase l({16, 2, 128}, DType::kInt8, {RowsOf(300, 303, 0, 1 << 20)}, seed);
    const std::vector<double> want_local = l.Want();
    l.Store(*backend_);
    local = std::max(local, RelativeError(l.Run(*backend_), want_local));
    GlobalCase g({8, 2, 32, 16, 128}, DType::kInt8, DType::kF32, {RowsOf(300, 302, 0, 0)}, seed);
    const std::vector<double> want_global = g.Want();
    g.Store(*backend_);
    expanded = std::max(expanded, RelativeError(g.RunExpanded(*backend_), want_global));
    absorbed = std::max(absorbed, RelativeError(g.RunAbsorbed(*backend_), want_global));
  }
  std::printf("int8 cache, %-6s worst error of %.0e: local %.1e, expanded %.1e, absorbed %.1e\n",
              GetParam().c_str(), kOutput, local, expanded, absorbed);
  EXPECT_LE(local, kOutput);
  EXPECT_LE(expanded, kOutput);
  EXPECT_LE(absorbed, kOutput);
}

// Rotary keys a hundred times the latents, queries as much smaller: the same scores. With a scale
// in common the latents would keep one digit.
TEST_P(Int8CacheTest, LargeRotaryKeysDoNotCoarsenTheLatents) {
  GlobalCase c({8, 2, 32, 16, 128}, DType::kInt8, DType::kF32, {RowsOf(300, 302, 0, 0)}, 21);
  for (float& k : c.rope_key(0)) {
    k *= 100;
  }
  for (float& q : c.rope_query()) {
    q /= 100;
  }
  const std::vector<double> want = c.Want();
  c.Store(*backend_);
  EXPECT_LE(RelativeError(c.RunExpanded(*backend_), want), kOutput);
  EXPECT_LE(RelativeError(c.RunAbsorbed(*backend_), want), kOutput);
}

// A value that the cache cannot tell from others of its row does not touch other tokens' rows.
TEST_P(Int8CacheTest, AHugeRowTouchesNoOther) {
  LocalCase c({4, 2, 16}, DType::kInt8, {RowsOf(100, 101, 0, 50)}, 31);
  for (int64_t token = 51; token < 101; token += 7) {
    c.Value(0, token, 1)[3] = 1e20f;
    c.Key(0, token, 0)[2] = 0;
  }
  c.Store(*backend_);
  EXPECT_TRUE(Close(c.Run(*backend_), c.Want(), 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Isas, Int8CacheTest, ::testing::ValuesIn(CpuIsas()),
                         [](const auto& isa) { return isa.param; });

// The same bytes alone and in a batch, and marks for the rows that are not finite alone.
TEST(Int8AppendTest, ARowsBytesDependOnThatRowAlone) {
  const GlobalShape shape{2, 2, 8, 4, 37};
  const int64_t rows = 50;
  Random random(5);
  std::vector<float> latent = random.Floats(rows * shape.d_latent);
  std::vector<float> rope = random.Floats(rows * shape.heads_kv * shape.d_rope);
  latent[7 * 37 + 36] = INFINITY;
  rope[9 * 8] = kNoNumber;
  const std::vector<int64_t> page(rows, 0);
  std::vector<int32_t> slot(rows);
  for (int32_t row = 0; row < rows; ++row) {
    slot[static_cast<size_t>(row)] = 63 - row;
  }
  const auto append = [&](int64_t begin, int64_t count, std::vector<uint8_t>* pool) {
    std::vector<uint8_t> not_finite(rows, 0);
    MakeBackend("best", 2)->AppendGlobal({shape,
                                          {pool->data(), DType::kInt8, page.data() + begin,
                                           slot.data() + begin, not_finite.data() + begin, count},
                                          latent.data() + begin * shape.d_latent,
                                          rope.data() + begin * shape.heads_kv * shape.d_rope});
    for (int64_t row = begin; row < begin + count; ++row) {
      EXPECT_EQ(not_finite[static_cast<size_t>(row)], row == 7 || row == 9 ? 1 : 0) << row;
    }
  };
  const auto bytes = static_cast<size_t>(PageBytes(shape, DType::kInt8));
  std::vector<uint8_t> batch(bytes, 0xff);
  append(0, rows, &batch);
  std::vector<uint8_t> alone(bytes, 0xff);
  for (int64_t row = rows - 1; row >= 0; --row) {
    append(row, 1, &alone);
  }
  EXPECT_EQ(alone, batch);
}

}  // namespace
}  // namespace attnd::kernels
