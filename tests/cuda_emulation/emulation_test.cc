// The emulated device runs a kernel that uses a little of everything, in any order of threads and
// blocks, and what it promises about launches and memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "cuda_emulation/every_instruction.h"
#include "kernels/cuda/device.cuh"

namespace attnd::kernels::cuda {
namespace {

// Orders of threads and blocks: -2 in order, -1 in reverse, else at random.
void SetOrder(Stream& stream, int order) {
  if (order < 0) {
    stream.set_order(order == -1 ? Order::kReverse : Order::kInOrder);
  } else {
    stream.set_order(static_cast<uint64_t>(order));
  }
}

float AOf(int i) { return static_cast<float>(i * 7 % 23 - 11); }
float BOf(int i) { return static_cast<float>(i * 5 % 17 - 8); }

template <typename E>
void TestEveryInstruction(Stream& stream, int rows) {
  constexpr int kBlocks = 3;
  alignas(16) uint16_t a[256], b[256];
  std::vector<float> product(256), exponents(32), sums(32), last_seen(kBlocks);
  int arrivals = 0;
  double sum = 0;
  for (int i = 0; i < 256; ++i) {
    a[i] = FromFloat<E>(AOf(i)).bits;
    b[i] = FromFloat<E>(i / 16 < rows ? BOf(i) : NAN).bits;  // what is not valid is not read
  }
  for (int i = 0; i < 32; ++i) {
    exponents[i] = i == 9 ? -INFINITY : static_cast<float>(i % 5 - 2);
    sum += std::exp2(exponents[i]);
  }
  stream.ClearCounts();
  LaunchEveryInstruction(
      stream, kBlocks, std::is_same_v<E, BF16>,
      {a, b, rows, product.data(), exponents.data(), sums.data(), &arrivals, last_seen.data()});
  for (int i = 0; i < 256; ++i) {
    float want = 0;
    for (int k = 0; k < rows; ++k) {
      want += AOf(i / 16 * 16 + k) * BOf(k * 16 + i % 16);
    }
    ASSERT_EQ(product[i], want) << i;
  }
  for (float got : sums) {
    EXPECT_NEAR(got, 1 / sum, 1e-7 / sum);
  }
  EXPECT_EQ(arrivals, kBlocks);
  EXPECT_EQ(std::multiset<float>(last_seen.begin(), last_seen.end()),
            (std::multiset<float>{exponents[0], exponents[0], sums[1]}));
  EXPECT_EQ(stream.counts().mmas, 2 * kBlocks);
  EXPECT_EQ(stream.counts().copies, 64 * kBlocks);
}

TEST(Emulation, EveryInstructionInEveryOrder) {
  Stream stream;
  for (int order = -2; order < 4; ++order) {
    SetOrder(stream, order);
    for (int rows : {16, 9}) {
      TestEveryInstruction<BF16>(stream, rows);
      TestEveryInstruction<F16>(stream, rows);
    }
  }
}

struct OrderParams {
  int* next;
  int* places;  // [blocks.x * y * z][64]
};

__global__ void OrderKernel(OrderParams p) {
  const Index3 block = BlockIndex();
  const Index3 grid = GridSize();
  const int number = (block.z * grid.y + block.y) * grid.x + block.x;
  p.places[64 * number + ThreadIndex()] = AtomicAdd(p.next, 1);
}

std::vector<int> PlacesInOrder(Stream& stream) {
  int next = 0;
  std::vector<int> places(12 * 64);
  Launch(stream, OrderKernel, Index3{2, 3, 2}, 64, 0, OrderParams{&next, places.data()});
  return places;
}

TEST(Emulation, OrdersOfThreadsAndBlocks) {
  Stream stream;
  SetOrder(stream, -2);
  const std::vector<int> in_order = PlacesInOrder(stream);
  SetOrder(stream, -1);
  const std::vector<int> reverse = PlacesInOrder(stream);
  for (int i = 0; i < 12 * 64; ++i) {
    EXPECT_EQ(in_order[i], i);
    EXPECT_EQ(reverse[i], 12 * 64 - 1 - i);
  }
  SetOrder(stream, 5);
  const std::vector<int> random = PlacesInOrder(stream);
  const std::vector<int> another = PlacesInOrder(stream);
  SetOrder(stream, 5);
  EXPECT_EQ(PlacesInOrder(stream), random) << "a seed is an order";
  EXPECT_NE(random, another) << "two launches differ";
  EXPECT_NE(random, in_order);
  std::vector<int> sorted = random;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, in_order);
}

struct PoisonParams {
  float* floats;  // [64]
};

__global__ void PoisonKernel(PoisonParams p) {
  SharedCarver carver;
  const Shared<uint8_t> bytes = carver.Take<uint8_t>(3);
  const Shared<float> floats = carver.Take<float>(64);
  if (bytes.begin != 0 || floats.begin != 128) {
    return;
  }
  p.floats[ThreadIndex()] = floats.Load(ThreadIndex());
  floats.Store(ThreadIndex(), 1.0f);
}

TEST(Emulation, SharedMemoryBeginsAsNaN) {
  Stream stream;
  for (int round = 0; round < 2; ++round) {
    std::vector<float> floats(64);
    Launch(stream, PoisonKernel, Index3{2, 1, 1}, 64, 128 + 256, PoisonParams{floats.data()});
    for (float got : floats) {
      EXPECT_TRUE(std::isnan(got));
    }
  }
}

TEST(Emulation, RecordsLaunches) {
  Stream stream;
  int next = 0;
  std::vector<int> places(64);
  stream.StartRecording();
  Launch(stream, OrderKernel, Index3{}, 64, 0, OrderParams{&next, places.data()});
  Launch(stream, OrderKernel, Index3{}, 64, 0, OrderParams{&next, places.data()});
  const auto recorded = stream.StopRecording();
  EXPECT_EQ(next, 0);
  ASSERT_EQ(recorded.size(), 2u);
  for (const auto& work : recorded) {
    stream.Run(work);
  }
  EXPECT_EQ(next, 128);
  Launch(stream, OrderKernel, Index3{}, 64, 0, OrderParams{&next, places.data()});
  EXPECT_EQ(next, 192);
}

TEST(Emulation, Arithmetic) {
  EXPECT_EQ(Exp2(-INFINITY), 0.0f);
  EXPECT_EQ(Exp2(-127.0f), 0.0f);
  EXPECT_EQ(Exp2(-126.0f), 0x1p-126f);
  EXPECT_EQ(Exp2(3.0f), 8.0f);
  EXPECT_TRUE(std::isnan(Exp2(NAN)));
  EXPECT_EQ(Reciprocal(3.0f), 1.0f / 3.0f);
}

}  // namespace
}  // namespace attnd::kernels::cuda
