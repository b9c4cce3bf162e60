#include "kernels/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace attnd::kernels {
namespace {

TEST(CpuBackendTest, TheNameIsTheDeviceAndTheInstructionSet) {
  for (const std::string& isa : CpuIsas()) {
    auto backend = MakeCpuBackend({1, isa});
    ASSERT_TRUE(backend.ok());
    EXPECT_EQ((*backend)->Name(), "cpu:" + isa);
  }
  auto best = MakeCpuBackend({1, "best"});
  ASSERT_TRUE(best.ok());
  EXPECT_EQ((*best)->Name(), "cpu:" + CpuIsas().front());
}

TEST(CpuBackendTest, ThereIsAFallbackForAnyMachine) {
  const std::vector<std::string> isas = CpuIsas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.back(), "scalar");
}

TEST(CpuBackendTest, WrongOptionsAreNamed) {
  const auto isa = MakeCpuBackend({1, "mmx"}).status();
  EXPECT_EQ(isa.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(isa.message()).find("'mmx'"), std::string::npos);
  EXPECT_NE(std::string(isa.message()).find(CpuIsas().front()), std::string::npos);
  for (const int threads : {0, -1, 1025, std::numeric_limits<int>::max()}) {
    const auto status = MakeCpuBackend({threads, "best"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(std::to_string(threads)), std::string::npos);
  }
}

TEST(CpuBackendTest, ScratchBeyondTheMachineIsRefused) {
  auto backend = MakeCpuBackend({1, "best"});
  ASSERT_TRUE(backend.ok());
  const GlobalShape shape{128, 8, 128, 64, 512};
  const absl::Status status = (*backend)->Prepare({int64_t{1} << 60, 1, 1}, nullptr, &shape);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(CpuBackendDeathTest, BatchesBeyondTheLimitsAreBugs) {
  auto backend = MakeCpuBackend({1, "best"});
  ASSERT_TRUE(backend.ok());
  const LocalShape shape{1, 1, 4};
  ASSERT_TRUE((*backend)->Prepare({1, 1, 10}, &shape, nullptr).ok());
  const AttentionSequence sequence{nullptr, 0, 0, 1};
  const int64_t lo = 0;
  const int64_t hi = 11;
  const float query[4] = {};
  float output[4] = {};
  LocalAttentionParams params;
  params.shape = shape;
  params.batch = {nullptr, DType::kF32, &sequence, 1, &lo, &hi, 1.0f};
  params.query = query;
  params.output = output;
  EXPECT_DEATH((*backend)->LocalAttention(params), "keys of a row");
}

}  // namespace
}  // namespace attnd::kernels
