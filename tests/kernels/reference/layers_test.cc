// The reference layers against what can be computed by hand, and against each other.
#include "kernels/reference/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace attnd::kernels {
namespace {

std::vector<double> Draw(std::mt19937_64& engine, int64_t n) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values(static_cast<size_t>(n));
  for (double& value : values) {
    value = uniform(engine);
  }
  return values;
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-12) << i;
  }
}

ReferenceLocalLayer Local(uint64_t seed, int64_t window) {
  std::mt19937_64 engine(seed);
  ReferenceLocalLayer layer;
  layer.d_model = 10;
  layer.shape = {4, 2, 6};
  layer.window = window;
  layer.scale = 1 / std::sqrt(6.0);
  layer.theta = {1, 0.3, 0.01};
  layer.w_q = Draw(engine, 24 * 10);
  layer.w_k = Draw(engine, 12 * 10);
  layer.w_v = Draw(engine, 12 * 10);
  layer.w_o = Draw(engine, 10 * 24);
  return layer;
}

ReferenceGlobalLayer Global(uint64_t seed) {
  std::mt19937_64 engine(seed);
  ReferenceGlobalLayer layer;
  layer.d_model = 10;
  layer.d_query_latent = 5;
  layer.shape = {4, 2, 6, 4, 7};
  layer.scale = 1 / std::sqrt(10.0);
  layer.theta = {1, 0.1};
  layer.w_dkv = Draw(engine, 7 * 10);
  layer.w_uk = Draw(engine, 12 * 7);
  layer.w_uv = Draw(engine, 12 * 7);
  layer.w_dq = Draw(engine, 5 * 10);
  layer.w_uq = Draw(engine, 24 * 5);
  layer.w_kr = Draw(engine, 8 * 10);
  layer.w_qr = Draw(engine, 16 * 10);
  layer.w_o = Draw(engine, 10 * 24);
  return layer;
}

// One head of width 2, everything the identity: rows attend by the angle between positions.
TEST(ReferenceLayersTest, TwoRowsByHand) {
  ReferenceLocalLayer layer;
  layer.d_model = 2;
  layer.shape = {1, 1, 2};
  layer.window = 2;
  layer.scale = 1;
  layer.theta = {0.5};
  layer.w_q = layer.w_k = layer.w_v = layer.w_o = {1, 0, 0, 1};
  const std::vector<double> x = {1, 0, 0, 1};
  // q1 = k1 = (0, 1) turned by 0.5, k0 = (1, 0): q1 . k0 = -sin 0.5, q1 . k1 = 1.
  const double e0 = std::exp(-std::sin(0.5));
  const double e1 = std::exp(1.0);
  ExpectNear(ReferenceForward(layer, x, 2, 0, AllRows(2)), {1, 0, e0 / (e0 + e1), e1 / (e0 + e1)});
  // In a prefix of two, row 0 sees row 1 as well: q0 . k1 = -sin 0.5, q0 . k0 = 1.
  ExpectNear(ReferenceForward(layer, x, 2, 2, {0}), {e1 / (e0 + e1), e0 / (e0 + e1)});
  layer.window = 1;
  ExpectNear(ReferenceForward(layer, x, 2, 0, {1}), {0, 1});
}

TEST(ReferenceLayersTest, SomeRowsAreThoseRowsOfAll) {
  std::mt19937_64 engine(5);
  const std::vector<double> x = Draw(engine, 20 * 10);
  const std::vector<int64_t> wanted = {19, 0, 7};
  const auto expect_rows = [&](const auto& layer) {
    const std::vector<double> all = ReferenceForward(layer, x, 20, 3, AllRows(20));
    std::vector<double> want;
    for (const int64_t row : wanted) {
      want.insert(want.end(), all.begin() + row * 10, all.begin() + (row + 1) * 10);
    }
    ExpectNear(ReferenceForward(layer, x, 20, 3, wanted), want);
  };
  expect_rows(Local(1, 4));
  expect_rows(Global(2));
}

// Later rows change nothing before them, unless a prefix holds both.
TEST(ReferenceLayersTest, TheFutureIsNotSeen) {
  std::mt19937_64 engine(6);
  std::vector<double> x = Draw(engine, 12 * 10);
  const auto local = ReferenceForward(Local(3, 5), x, 12, 4, AllRows(8));
  const auto global = ReferenceForward(Global(4), x, 12, 4, AllRows(8));
  for (size_t i = 8 * 10; i < x.size(); ++i) {
    x[i] = 1e6;
  }
  ExpectNear(ReferenceForward(Local(3, 5), x, 12, 4, AllRows(8)), local);
  ExpectNear(ReferenceForward(Global(4), x, 12, 4, AllRows(8)), global);
  x[3 * 10] += 1;
  EXPECT_GT(std::abs(ReferenceForward(Local(3, 5), x, 12, 4, {0})[0] - local[0]), 1e-9);
}

// The latent is only a factorisation: scaling it and unscaling both expansions changes nothing.
TEST(ReferenceLayersTest, TheLatentIsOnlyAFactor) {
  const ReferenceGlobalLayer layer = Global(7);
  std::mt19937_64 engine(8);
  const std::vector<double> x = Draw(engine, 3 * 10);
  ReferenceGlobalLayer scaled = layer;
  for (double& w : scaled.w_dkv) {
    w *= 4;
  }
  for (double& w : scaled.w_uk) {
    w /= 4;
  }
  for (double& w : scaled.w_uv) {
    w /= 4;
  }
  ExpectNear(ReferenceForward(scaled, x, 3, 0, AllRows(3)),
             ReferenceForward(layer, x, 3, 0, AllRows(3)));
}

}  // namespace
}  // namespace attnd::kernels
