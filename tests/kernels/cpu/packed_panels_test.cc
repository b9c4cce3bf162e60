#include "kernels/cpu/packed_panels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace attnd::kernels {
namespace {

// Element (group, n, k) of a weight is a number that says so.
template <typename T>
std::vector<T> Numbered(int64_t groups, int64_t out, int64_t in, bool transposed) {
  std::vector<T> data(static_cast<size_t>(groups * out * in));
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t n = 0; n < out; ++n) {
      for (int64_t k = 0; k < in; ++k) {
        const int64_t at = g * out * in + (transposed ? k * out + n : n * in + k);
        data[static_cast<size_t>(at)] = static_cast<T>(1 + g * 10000 + n * 100 + k);
      }
    }
  }
  return data;
}

template <typename T>
void ExpectPanels(DType dtype, int64_t groups, int64_t out, int64_t in, bool transposed) {
  const std::vector<T> data = Numbered<T>(groups, out, in, transposed);
  // One byte off any alignment.
  std::vector<uint8_t> bytes(data.size() * sizeof(T) + 1);
  std::memcpy(bytes.data() + 1, data.data(), data.size() * sizeof(T));
  auto packed = PackPanels({bytes.data() + 1, dtype, groups, out, in, transposed});
  ASSERT_TRUE(packed.ok());
  const int64_t panels = (out + 15) / 16;
  EXPECT_EQ((*packed)->panels(), panels);
  EXPECT_EQ((*packed)->bytes(), groups * panels * 16 * in * DTypeSize(dtype));
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*packed)->Panel(0, 0)) % 64, 0u);
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t n = 0; n < panels * 16; ++n) {
      for (int64_t k = 0; k < in; ++k) {
        T got;
        std::memcpy(
            &got, (*packed)->Panel(g, n / 16) + (k * 16 + n % 16) * static_cast<int64_t>(sizeof(T)),
            sizeof(T));
        const T want = n < out ? static_cast<T>(1 + g * 10000 + n * 100 + k) : T();
        ASSERT_EQ(got, want) << g << " " << n << " " << k;
      }
    }
  }
}

TEST(PackedPanelsTest, EveryElementIsInItsPanel) {
  for (const bool transposed : {false, true}) {
    for (const int64_t out : {1, 15, 16, 17, 40}) {
      for (const int64_t in : {1, 7, 33}) {
        ExpectPanels<float>(DType::kF32, 3, out, in, transposed);
        ExpectPanels<uint16_t>(DType::kBF16, 2, out, in, transposed);
        ExpectPanels<uint16_t>(DType::kF16, 1, out, in, transposed);
      }
    }
  }
}

TEST(PackedPanelsTest, NoMemoryIsAStatus) {
  const float nothing = 0;
  const auto status =
      PackPanels({&nothing, DType::kF32, int64_t{1} << 30, int64_t{1} << 20, 1 << 20, false})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace attnd::kernels
