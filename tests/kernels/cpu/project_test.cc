// Projections against float64, and bit for bit against themselves, on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/check.h"
#include "tests/kernels/attention_case.h"

namespace attnd::kernels {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// A projection with room between its rows, poisoned.
struct Problem {
  Problem(DType type, int64_t groups_in, int64_t out_in, int64_t in_in, int64_t inner_in,
          int64_t rows_in, uint64_t seed)
      : dtype(type), groups(groups_in), out(out_in), in(in_in), inner(inner_in), rows(rows_in) {
    Random random(seed);
    x_inner = in + 3;
    x_row = groups * inner * x_inner + 5;
    y_inner = out + 2;
    y_row = groups * inner * y_inner + 1;
    weight = Rounded(dtype, random.Floats(groups * out * in));
    x.assign(static_cast<size_t>(rows * x_row), kNoNumber);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < groups * inner; ++i) {
        for (int64_t k = 0; k < in; ++k) {
          x[static_cast<size_t>(r * x_row + i * x_inner + k)] = random.Uniform();
        }
      }
    }
  }

  // y of rows [begin, begin + count), poisoned where nothing belongs.
  std::vector<float> Run(Backend& backend, int64_t begin, int64_t count) const {
    const std::vector<uint8_t> bytes = Stored(dtype, weight);
    auto packed = backend.Pack({bytes.data(), dtype, groups, out, in, false});
    Check(packed.ok(), "a test has the memory it needs");
    std::vector<float> y(static_cast<size_t>(count * y_row), -77.0f);
    ProjectParams params;
    params.weight = packed->get();
    params.rows = count;
    params.inner = inner;
    params.x = x.data() + begin * x_row;
    params.x_row = x_row;
    params.x_inner = x_inner;
    params.y = y.data();
    params.y_row = y_row;
    params.y_inner = y_inner;
    backend.Project(params);
    return y;
  }

  std::vector<double> Want() const {
    std::vector<double> y(static_cast<size_t>(rows * y_row), -77.0);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < groups * inner; ++i) {
        for (int64_t n = 0; n < out; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < in; ++k) {
            sum += double{x[static_cast<size_t>(r * x_row + i * x_inner + k)]} *
                   weight[static_cast<size_t>((i / inner * out + n) * in + k)];
          }
          y[static_cast<size_t>(r * y_row + i * y_inner + n)] = sum;
        }
      }
    }
    return y;
  }

  DType dtype;
  int64_t groups, out, in, inner, rows;
  int64_t x_row, x_inner, y_row, y_inner;
  std::vector<float> weight, x;
};

std::unique_ptr<Backend> Prepared(const std::string& isa, int threads) {
  auto backend = MakeBackend(isa, threads);
  Check(backend->Prepare({1, 1, 1}, nullptr, nullptr).ok(), "a test has the memory it needs");
  return backend;
}

class ProjectTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ProjectTest, AgreesWithFloat64) {
  auto backend = Prepared(GetParam(), 2);
  uint64_t seed = 0;
  for (const int64_t out : {1, 15, 16, 17, 33, 80, 200}) {
    for (const int64_t in : {1, 5, 255, 256, 257, 600}) {
      for (const int64_t rows : {1, 2, 5, 7, 40, 97}) {
        ++seed;
        const Problem p(kDTypes[seed % 3], 1, out, in, 1, rows, seed);
        ASSERT_TRUE(Close(p.Run(*backend, 0, rows), p.Want(), 1e-6))
            << out << " x " << in << ", rows " << rows << ", seed " << seed;
      }
    }
  }
}

TEST_P(ProjectTest, GroupsWithInnerRows) {
  auto backend = Prepared(GetParam(), 2);
  uint64_t seed = 100;
  for (const int64_t inner : {1, 3, 16, 128}) {
    for (const int64_t rows : {1, 2, 9}) {
      ++seed;
      const Problem p(kDTypes[seed % 3], 3, 20, 28, inner, rows, seed);
      ASSERT_TRUE(Close(p.Run(*backend, 0, rows), p.Want(), 1e-6)) << inner << ", " << rows;
    }
  }
}

TEST_P(ProjectTest, ARowsBitsDependOnThatRowAlone) {
  for (const DType dtype : kDTypes) {
    const Problem p(dtype, 1, 100, 700, 1, 40, 7);
    auto one = Prepared(GetParam(), 1);
    const std::vector<float> all = p.Run(*one, 0, 40);
    for (const int threads : {1, 2, 3}) {
      auto backend = Prepared(GetParam(), threads);
      for (int64_t rows = 1; rows <= 40; ++rows) {
        const int64_t begin = (rows * 7) % (41 - rows);
        const std::vector<float> some = p.Run(*backend, begin, rows);
        const std::vector<float> want(all.begin() + begin * p.y_row,
                                      all.begin() + (begin + rows) * p.y_row);
        ASSERT_TRUE(SameBits(some, want)) << rows << " rows, " << threads << " threads";
      }
    }
  }
}

TEST_P(ProjectTest, GroupedRowsBitsToo) {
  const Problem p(DType::kBF16, 2, 48, 300, 16, 9, 8);
  auto one = Prepared(GetParam(), 1);
  const std::vector<float> all = p.Run(*one, 0, 9);
  for (const int threads : {2, 3}) {
    auto backend = Prepared(GetParam(), threads);
    for (int64_t row = 0; row < 9; ++row) {
      const std::vector<float> want(all.begin() + row * p.y_row, all.begin() + (row + 1) * p.y_row);
      ASSERT_TRUE(SameBits(p.Run(*backend, row, 1), want)) << row;
    }
  }
}

TEST_P(ProjectTest, SharedOverWorkers) {
  auto backend = Prepared(GetParam(), 3);
  for (const int64_t rows : {1, 130}) {
    const Problem p(DType::kF32, 1, 900, 320, 1, rows, 9);
    ASSERT_TRUE(Close(p.Run(*backend, 0, rows), p.Want(), 1e-6)) << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ProjectTest, ::testing::ValuesIn(CpuIsas()),
                         [](const auto& isa) { return isa.param; });

}  // namespace
}  // namespace attnd::kernels
