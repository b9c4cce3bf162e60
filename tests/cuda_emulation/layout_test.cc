// Where elements lie: of Mma by the tables of the PTX ISA (mma.m16n8k16, figures of the fragments
// for .f16 and .bf16), of LoadMatrix4 by those of ldmatrix.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cuda_emulation/fragment_tables.h"
#include "kernels/cuda/device.cuh"

namespace attnd::kernels::cuda {
namespace {

using Place = FragmentPlace;

TEST(Layout, TheTablesAreThoseOfTheFigures) {
  const Place a = PlaceInA(13, 6);  // lane 13: group 3, thread 1 of it
  EXPECT_EQ(a.row, 11);
  EXPECT_EQ(a.column, 10);
  const Place b = PlaceInB(13, 3);
  EXPECT_EQ(b.row, 11);
  EXPECT_EQ(b.column, 3);
  const Place d = PlaceInD(13, 2);
  EXPECT_EQ(d.row, 11);
  EXPECT_EQ(d.column, 2);
}

struct MmaParams {
  const uint32_t* a;  // [32][4] registers
  const uint32_t* b;  // [32][2]
  float* d;           // [32][4], read and written
};

template <typename E>
__global__ void MmaKernel(MmaParams p) {
  uint32_t a[4], b[2];
  float d[4];
  for (int i = 0; i < 4; ++i) {
    a[i] = p.a[4 * LaneIndex() + i];
    b[i % 2] = p.b[2 * LaneIndex() + i % 2];
    d[i] = p.d[4 * LaneIndex() + i];
  }
  Mma<E>(d, a, b);
  for (int i = 0; i < 4; ++i) {
    p.d[4 * LaneIndex() + i] = d[i];
  }
}

template <typename E>
void SetElement(std::vector<uint32_t>& registers, int element, float value) {
  registers[element / 2] |= static_cast<uint32_t>(FromFloat<E>(value).bits) << 16 * (element % 2);
}

template <typename E>
void TestMma() {
  // Small integers, all products and sums exact; no two rows or columns alike.
  const auto a_of = [](int row, int k) {
    return static_cast<float>((row * 16 + k) * 37 % 61 - 30);
  };
  const auto b_of = [](int k, int n) { return static_cast<float>((k * 8 + n) * 29 % 53 - 26); };
  const auto d_of = [](int row, int n) { return static_cast<float>(row * 8 + n); };
  std::vector<uint32_t> a(32 * 4), b(32 * 2);
  std::vector<float> d(32 * 4);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 8; ++i) {
      const Place place = PlaceInA(lane, i);
      SetElement<E>(a, 8 * lane + i, a_of(place.row, place.column));
    }
    for (int i = 0; i < 4; ++i) {
      const Place in_b = PlaceInB(lane, i);
      SetElement<E>(b, 4 * lane + i, b_of(in_b.row, in_b.column));
      const Place in_d = PlaceInD(lane, i);
      d[4 * lane + i] = d_of(in_d.row, in_d.column);
    }
  }
  Stream stream;
  Launch(stream, MmaKernel<E>, Index3{1, 1, 1}, 32, 0, MmaParams{a.data(), b.data(), d.data()});
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Place place = PlaceInD(lane, i);
      float want = d_of(place.row, place.column);
      for (int k = 0; k < 16; ++k) {
        want += a_of(place.row, k) * b_of(k, place.column);
      }
      ASSERT_EQ(d[4 * lane + i], want) << "lane " << lane << ", element " << i;
    }
  }
}

TEST(Layout, MmaOfBF16) { TestMma<BF16>(); }
TEST(Layout, MmaOfF16) { TestMma<F16>(); }

struct LoadMatrixParams {
  bool transposed;
  int stride;        // elements from a row of a matrix to the next
  uint32_t* loaded;  // [32][4]
};

// Element e of shared memory is e. Matrix j takes elements 8 j to 8 j + 7 of rows 0 to 7.
__global__ void LoadMatrixKernel(LoadMatrixParams p) {
  SharedCarver carver;
  const Shared<uint16_t> s = carver.Take<uint16_t>(8 * p.stride);
  for (int i = ThreadIndex(); i < 8 * p.stride; i += 32) {
    s.Store(i, static_cast<uint16_t>(i));
  }
  SyncWarp();
  const int lane = LaneIndex();
  const int row = lane % 8 * p.stride + lane / 8 * 8;
  uint32_t r[4];
  if (p.transposed) {
    LoadMatrix4Transposed(r, s, row);
  } else {
    LoadMatrix4(r, s, row);
  }
  for (int j = 0; j < 4; ++j) {
    p.loaded[4 * lane + j] = r[j];
  }
}

std::vector<uint32_t> LoadMatrices(Stream& stream, bool transposed, int stride) {
  std::vector<uint32_t> loaded(32 * 4);
  Launch(stream, LoadMatrixKernel, Index3{1, 1, 1}, 32, 8 * stride * 2,
         LoadMatrixParams{transposed, stride, loaded.data()});
  return loaded;
}

uint32_t TwoElements(int low, int high) {
  return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
}

TEST(Layout, LoadMatrix) {
  Stream stream;
  const std::vector<uint32_t> loaded = LoadMatrices(stream, false, 32);
  for (int lane = 0; lane < 32; ++lane) {
    for (int j = 0; j < 4; ++j) {
      const Place place = PlaceOfLoad(lane);
      const int first = place.row * 32 + 8 * j + place.column;
      ASSERT_EQ(loaded[4 * lane + j], TwoElements(first, first + 1)) << lane << " " << j;
    }
  }
  EXPECT_EQ(loaded[4 * 13 + 2], TwoElements(3 * 32 + 16 + 2, 3 * 32 + 16 + 3));
}

TEST(Layout, LoadMatrixTransposed) {
  Stream stream;
  const std::vector<uint32_t> loaded = LoadMatrices(stream, true, 32);
  for (int lane = 0; lane < 32; ++lane) {
    for (int j = 0; j < 4; ++j) {
      const Place place = PlaceOfLoadTransposed(lane);
      const int first = place.row * 32 + 8 * j + place.column;
      ASSERT_EQ(loaded[4 * lane + j], TwoElements(first, first + 32)) << lane << " " << j;
    }
  }
  EXPECT_EQ(loaded[4 * 13 + 2], TwoElements(2 * 32 + 16 + 3, 3 * 32 + 16 + 3));
}

TEST(Layout, BankConflictsOfLoadMatrix) {
  // The banks are 128 bytes wide: rows 64 bytes apart share them by fours, rows 128 bytes apart
  // all, rows 80 bytes apart not at all.
  for (const auto& [stride, conflicts] :
       std::vector<std::pair<int, int>>{{32, 12}, {64, 28}, {40, 0}}) {
    Stream stream;
    LoadMatrices(stream, false, stride);
    EXPECT_EQ(stream.counts().bank_conflicts, conflicts) << stride;
    EXPECT_EQ(stream.counts().load_matrices, 1);
  }
}

}  // namespace
}  // namespace attnd::kernels::cuda
