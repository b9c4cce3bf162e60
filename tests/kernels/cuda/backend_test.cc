// The CUDA backend's operations but attention, on the emulated device: against the CPU's, bit for
// bit where nothing is added up.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cache_layout.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/cuda/emulated_backend.h"

namespace attnd::kernels::cuda {
namespace {

std::unique_ptr<Backend> Cpu() { return *MakeCpuBackend({1, "best"}); }

// y of a projection with groups, inner heads and gaps between rows.
struct ProjectCase {
  DType dtype = DType::kF32;
  int64_t groups = 1, inner = 1, out = 1, in = 1, rows = 1;
  bool transposed = false;

  std::vector<float> Run(Backend& backend, int64_t first, int64_t count) const {
    Random random(3);
    const std::vector<uint8_t> stored = Stored(dtype, random.Floats(groups * out * in));
    const std::vector<float> x = random.Floats(rows * groups * inner * in);
    auto weight = *backend.Pack({stored.data(), dtype, groups, out, in, transposed});
    EXPECT_TRUE(backend.Prepare({rows, 1, 1}, nullptr, nullptr).ok());
    std::vector<float> y(static_cast<size_t>(rows * (groups * inner * out + 3)), kNoNumber);
    ProjectParams params;
    params.weight = weight.get();
    params.rows = count;
    params.inner = inner;
    params.x_row = groups * inner * in;
    params.x_inner = in;
    params.x = x.data() + first * params.x_row;
    params.y_row = groups * inner * out + 3;
    params.y_inner = out;
    params.y = y.data() + first * params.y_row;
    backend.Project(params);
    return y;
  }
};

TEST(BackendTest, ProjectionsAreTheCpusWithinTheirRoundings) {
  const ProjectCase cases[] = {{DType::kF32, 1, 1, 33, 50, 5, false},
                               {DType::kBF16, 1, 1, 64, 128, 130, false},
                               {DType::kF16, 3, 4, 10, 24, 67, false},
                               {DType::kBF16, 2, 5, 12, 20, 9, true},
                               {DType::kF32, 2, 1, 7, 9, 1100, false}};
  for (const ProjectCase& c : cases) {
    PromptBackend backend(SmallOptions());
    auto cpu = Cpu();
    const std::vector<float> want = c.Run(*cpu, 0, c.rows);
    // Rows are rounded to the weight's dtype; the CPU keeps them.
    const double tolerance = c.dtype == DType::kF32 ? 1e-6 : c.dtype == DType::kF16 ? 1e-3 : 6e-3;
    EXPECT_TRUE(Close(c.Run(backend, 0, c.rows), {want.begin(), want.end()}, tolerance))
        << DTypeName(c.dtype) << " " << c.rows;
  }
}

TEST(BackendTest, AProjectedRowDoesNotKnowOfTheOthers) {
  for (const int64_t inner : {1, 3}) {
    const ProjectCase c{DType::kBF16, 2, inner, 20, 40, 300, false};
    PromptBackend backend(SmallOptions());
    const std::vector<float> all = c.Run(backend, 0, c.rows);
    for (const auto& [first, count] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {17, 1}, {100, 50}, {299, 1}, {127, 2}}) {
      const std::vector<float> some = c.Run(backend, first, count);
      int64_t compared = 0;
      for (size_t i = 0; i < some.size(); ++i) {
        if (!std::isnan(some[i])) {
          ASSERT_EQ(some[i], all[i]) << first << " " << count << " " << i;
          ++compared;
        }
      }
      EXPECT_EQ(compared, count * 2 * inner * 20);
    }
  }
}

TEST(BackendTest, RopeIsTheCpus) {
  Random random(4);
  const std::vector<float> x = random.Floats(5 * 3 * 20);
  const std::vector<float> cos = random.Floats(5 * 10);
  const std::vector<float> sin = random.Floats(5 * 10);
  std::vector<float> want = x;
  std::vector<float> got = x;
  PromptBackend backend(SmallOptions());
  Cpu()->Rope({want.data(), cos.data(), sin.data(), 5, 3, 10});
  backend.Rope({got.data(), cos.data(), sin.data(), 5, 3, 10});
  EXPECT_TRUE(Close(got, {want.begin(), want.end()}, 1e-6));
}

class BackendAppendTest : public testing::TestWithParam<DType> {};

constexpr int64_t kRows = 9;

// Two pages, rows in slots of both; row 4 is not finite where `bad`.
template <typename Shape, typename Append>
std::vector<uint8_t> Appended(const Shape& shape, DType dtype, Append append,
                              std::vector<uint8_t>* not_finite) {
  const int64_t bytes = PageBytes(shape, dtype);
  std::vector<uint8_t> pool(static_cast<size_t>(2 * bytes), 0x5a);
  std::vector<int64_t> page;
  std::vector<int32_t> slot;
  for (int64_t row = 0; row < kRows; ++row) {
    page.push_back(row % 2 * bytes);
    slot.push_back(static_cast<int32_t>(63 - row));
  }
  not_finite->assign(kRows, 0);
  append(AppendTarget{pool.data(), dtype, page.data(), slot.data(), not_finite->data(), kRows});
  return pool;
}

TEST_P(BackendAppendTest, PagesHaveTheBytesOfTheLayout) {
  const LocalShape local{6, 3, 20};
  const GlobalShape global{6, 3, 8, 6, 20};
  Random random(5);
  std::vector<float> key = random.Floats(kRows * 3 * 20);
  const std::vector<float> value = random.Floats(kRows * 3 * 20);
  std::vector<float> latent = random.Floats(kRows * 20);
  const std::vector<float> rope = random.Floats(kRows * 3 * 6);
  key[4 * 60 + 7] = INFINITY;
  latent[4 * 20 + 3] = kNoNumber;
  std::fill_n(latent.begin() + 5 * 20, 20, 0.0f);
  PromptBackend backend(SmallOptions());
  // The CPU's append, as cache_layout.h stores rows.
  const auto cpu = Cpu();
  std::vector<uint8_t> want_flags;
  std::vector<uint8_t> got_flags;
  for (const bool is_local : {true, false}) {
    const auto run = [&](Backend& b, std::vector<uint8_t>* flags) {
      return is_local ? Appended(
                            local, GetParam(),
                            [&](const AppendTarget& target) {
                              b.AppendLocal({local, target, key.data(), value.data()});
                            },
                            flags)
                      : Appended(
                            global, GetParam(),
                            [&](const AppendTarget& target) {
                              b.AppendGlobal({global, target, latent.data(), rope.data()});
                            },
                            flags);
    };
    std::vector<uint8_t> want = run(*cpu, &want_flags);
    std::vector<uint8_t> got = run(backend, &got_flags);
    EXPECT_EQ(want_flags, got_flags);
    EXPECT_EQ(std::count(got_flags.begin(), got_flags.end(), 1), 1);
    EXPECT_EQ(got_flags[4], 1);
    // NaNs of the row that is refused have other bits.
    const int64_t bytes = is_local ? PageBytes(local, GetParam()) : PageBytes(global, GetParam());
    int64_t different = 0;
    for (int64_t i = 0; i < 2 * bytes; ++i) {
      different += want[static_cast<size_t>(i)] != got[static_cast<size_t>(i)];
    }
    EXPECT_LE(different, is_local ? 0 : 24) << (is_local ? "local" : "global");
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, BackendAppendTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16, DType::kFp8E4M3),
                         [](const auto& dtype) { return DTypeName(dtype.param); });

TEST(BackendTest, CopiesArriveInOrderAndAtTheSynchronization) {
  auto runtime = MakeEmulatedRuntime();
  auto backend = *MakeCudaBackend(std::move(runtime), SmallOptions());
  // Larger than the page-locked memory in between, both ways.
  const int64_t bytes = int64_t{70} << 20;
  auto memory = *backend->Allocate("a test", bytes + 16);
  std::vector<uint8_t> host(static_cast<size_t>(bytes));
  for (size_t i = 0; i < host.size(); ++i) {
    host[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  }
  const std::vector<uint8_t> want = host;
  backend->Upload(memory->data(), host.data(), bytes);
  std::fill(host.begin(), host.end(), 0);
  backend->Copy(memory->data() + bytes, memory->data() + 5, 16);
  uint8_t tail[16] = {};
  backend->Download(tail, memory->data() + bytes, 16);
  backend->Download(host.data(), memory->data(), bytes);
  EXPECT_EQ(tail[3], 0) << "downloads wait for Synchronize()";
  backend->Synchronize();
  EXPECT_EQ(std::memcmp(host.data(), want.data(), host.size()), 0);
  EXPECT_EQ(std::memcmp(tail, want.data() + 5, 16), 0);
}

TEST(BackendTest, WhatDoesNotFitIsSaidWithWhatIsFree) {
  EmulatedOptions device;
  device.total_bytes = 100 << 20;
  PromptBackend backend(SmallOptions(), device);
  EXPECT_EQ(backend.Allocate("the page pool", 200 << 20).status().message(),
            "emulated: the page pool needs 209715201 bytes, 104857600 are free");
  auto kept = *backend.Allocate("something", 90 << 20);
  const std::vector<float> weight(64 * 64, 1.0f);
  EXPECT_EQ(backend.Pack({weight.data(), DType::kF32, 1, 64, 64, false}).status().message(),
            "emulated: weights needs 16777217 bytes, 10485759 are free");
  const LocalShape local{8, 8, 128};
  EXPECT_EQ(backend.Prepare({4096, 64, 4096}, &local, nullptr).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(BackendTest, WidthsBeyondSharedMemoryAreRefused) {
  PromptBackend backend(SmallOptions());
  const LocalShape local{2, 2, 40000};
  const absl::Status status = backend.Prepare({4, 4, 4}, &local, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("local layers are 40000 wide"), std::string::npos) << status;
}

TEST(BackendDeathTest, AFailedDeviceEndsTheProcess) {
  auto runtime = MakeEmulatedRuntime();
  EmulatedRuntime* device = runtime.get();
  auto backend = *MakeCudaBackend(std::move(runtime), SmallOptions());
  device->FailNext("an illegal memory access was encountered");
  EXPECT_DEATH(backend->Synchronize(), "emulated: an illegal memory access");
}

}  // namespace
}  // namespace attnd::kernels::cuda
