// Which layers are remembered, and which of them go.
#include "kernels/cuda/graph_cache.h"

#include <gtest/gtest.h>

namespace attnd::kernels::cuda {
namespace {

// A layer of weight `weight` on so many rows; `rows_behind` of its second product.
std::vector<Operation> Layer(int64_t weight, int64_t rows, int64_t rows_behind = 1) {
  ProjectParams first;
  first.weight = reinterpret_cast<const PackedWeight*>(weight * 256);
  first.rows = rows;
  ProjectParams second = first;
  second.rows = rows_behind;
  return {first, second};
}

TEST(GraphCache, LayersAreToldApartByAllTheirOperations) {
  GraphCache cache(10);
  ++cache.Find(Layer(1, 4)).uses;
  EXPECT_EQ(cache.Find(Layer(2, 4)).uses, 0);
  EXPECT_EQ(cache.Find(Layer(1, 5)).uses, 0);
  EXPECT_EQ(cache.Find(Layer(1, 4, 2)).uses, 0) << "the first operation is the same";
  EXPECT_EQ(cache.Find({}).uses, 0);
  EXPECT_EQ(cache.Find(Layer(1, 4)).uses, 1);
  EXPECT_EQ(cache.size(), 5);
  cache.Clear();
  EXPECT_EQ(cache.Find(Layer(1, 4)).uses, 0);
  EXPECT_EQ(cache.size(), 1);
}

TEST(GraphCache, TheLongestUnusedGoes) {
  GraphCache cache(3);
  for (const int64_t behind : {1, 2, 3}) {  // with one key
    ++cache.Find(Layer(1, 4, behind)).uses;
  }
  ++cache.Find(Layer(1, 4, 1)).uses;
  ++cache.Find(Layer(2, 4)).uses;  // in place of 2
  EXPECT_EQ(cache.size(), 3);
  EXPECT_EQ(cache.Find(Layer(1, 4, 1)).uses, 2);
  EXPECT_EQ(cache.Find(Layer(1, 4, 3)).uses, 1);
  EXPECT_EQ(cache.Find(Layer(2, 4)).uses, 1);
  EXPECT_EQ(cache.Find(Layer(1, 4, 2)).uses, 0) << "it was forgotten";
}

}  // namespace
}  // namespace attnd::kernels::cuda
