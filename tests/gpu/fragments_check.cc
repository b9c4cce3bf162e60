// Single instructions of the device against the tables that the emulated device is held to.
#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "kernels/cuda/element.cuh"
#include "tests/cuda_emulation/fragment_tables.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/fragments.h"
#include "tests/gpu/random.h"

namespace attnd::gpu {
namespace {

using namespace kernels::cuda;

// Small integers: all products and sums are exact, and no two rows or columns are alike.
float AOf(int row, int k) { return static_cast<float>((row * 16 + k) * 37 % 61 - 30); }
float BOf(int k, int n) { return static_cast<float>((k * 8 + n) * 29 % 53 - 26); }
float DOf(int row, int n) { return static_cast<float>(row * 8 + n); }

template <typename E>
void SetElement(std::vector<uint32_t>& registers, int element, float value) {
  registers[static_cast<size_t>(element / 2)] |= static_cast<uint32_t>(FromFloat<E>(value).bits)
                                                 << 16 * (element % 2);
}

template <typename E>
void CheckMma(Device& device, Report& report) {
  std::vector<uint32_t> a(32 * 4), b(32 * 2);
  std::vector<float> d, want;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 8; ++i) {
      SetElement<E>(a, 8 * lane + i, AOf(PlaceInA(lane, i).row, PlaceInA(lane, i).column));
    }
    for (int i = 0; i < 4; ++i) {
      SetElement<E>(b, 4 * lane + i, BOf(PlaceInB(lane, i).row, PlaceInB(lane, i).column));
      const FragmentPlace place = PlaceInD(lane, i);
      d.push_back(DOf(place.row, place.column));
      want.push_back(d.back());
      for (int k = 0; k < 16; ++k) {
        want.back() += AOf(place.row, k) * BOf(k, place.column);
      }
    }
  }
  const Buffer<uint32_t> device_a(device, a), device_b(device, b);
  const Buffer<float> device_d(device, d);
  const bool bf16 = std::is_same_v<E, BF16>;
  LaunchMmaProbe(device.stream(), bf16, {device_a.data(), device_b.data(), device_d.data()});
  device.Synchronize("the mma probe");
  report.Same("fragments", bf16 ? "mma bf16" : "mma f16", device_d.Get(), want);
}

void CheckLoadMatrix(Device& device, Report& report, bool transposed, int valid_rows) {
  std::vector<uint16_t> rows(16 * 32), copied;
  for (int i = 0; i < 16 * 32; ++i) {
    rows[static_cast<size_t>(i)] = static_cast<uint16_t>(i + 1);
    copied.push_back(i / 32 < valid_rows ? static_cast<uint16_t>(i + 1) : 0);
  }
  std::vector<uint32_t> want;
  for (int lane = 0; lane < 32; ++lane) {
    for (int j = 0; j < 4; ++j) {
      const FragmentPlace place = transposed ? PlaceOfLoadTransposed(lane) : PlaceOfLoad(lane);
      const size_t first = static_cast<size_t>(place.row * 32 + 8 * j + place.column);
      want.push_back(static_cast<uint32_t>(copied[first]) |
                     static_cast<uint32_t>(copied[first + (transposed ? 32 : 1)]) << 16);
    }
  }
  const Buffer<uint16_t> device_rows(device, rows), device_copied(device, 16 * 32);
  const Buffer<uint32_t> loaded(device, 32 * 4);
  LaunchLoadMatrixProbe(device.stream(), {device_rows.data(), valid_rows, transposed, loaded.data(),
                                          device_copied.data()});
  device.Synchronize("the ldmatrix probe");
  const std::string name = std::string(transposed ? "ldmatrix.trans" : "ldmatrix") + ", " +
                           std::to_string(valid_rows) + " rows valid";
  report.Same("fragments", name, loaded.Get(), want);
  report.Same("fragments", name + ": cp.async", device_copied.Get(), copied);
}

// Every exponent, halfway cases, what overflows, NaN and infinities; then numbers at random.
std::vector<float> InterestingFloats() {
  std::vector<float> values = {0.0f, -0.0f, INFINITY, -INFINITY, NAN};
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (uint32_t mantissa : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0x17fffu, 0x18000u, 0xfffffu,
                              0x100000u, 0x180000u, 0x1000u, 0x3000u, 0x7fffffu}) {
      const float value = BitsToFloat(exponent << 23 | mantissa);
      values.push_back(value);
      values.push_back(-value);
    }
  }
  Random random(1);
  for (int i = 0; i < 4096; ++i) {
    values.push_back(random.Float() * 150);
  }
  return values;
}

struct Arithmetic {
  std::vector<uint16_t> bf16, f16;
  std::vector<uint8_t> e4m3;
  std::vector<uint32_t> packed, widened, reciprocal;
};

// Any NaN of a float32: which one a device makes is its own affair.
uint32_t Bits(float x) { return std::isnan(x) ? 0x7fc00000u : FloatToBits(x); }

Arithmetic OnHost(const std::vector<float>& x) {
  Arithmetic host;
  for (float value : x) {
    host.bf16.push_back(ToBF16(value).bits);
    host.f16.push_back(ToF16(value).bits);
    host.e4m3.push_back(ToE4M3(value).bits);
    host.packed.push_back(Pack<BF16>(value, -value));
    float widened[4];
    UnpackE4M3(FloatToBits(value), widened);
    for (float w : widened) {
      host.widened.push_back(Bits(w));
    }
    host.reciprocal.push_back(Bits(1.0f / value));
  }
  return host;
}

std::vector<uint32_t> AllBits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (float value : values) {
    bits.push_back(Bits(value));
  }
  return bits;
}

// Relative error below 2^-21, results below float32's normal numbers may be 0.
void CheckExp2(Report& report, const std::vector<float>& x, const std::vector<float>& got) {
  double worst = 0;
  std::string wrong;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp2(static_cast<double>(x[i]));
    if (std::isnan(x[i]) != std::isnan(got[i]) ||
        std::isinf(static_cast<float>(want)) != std::isinf(got[i])) {
      wrong = "of " + std::to_string(x[i]);
    } else if (std::isfinite(want) && std::isfinite(got[i]) && want >= 0x1p-126) {
      worst = std::max(worst, std::abs(got[i] - want) / want);
    } else if (want < 0x1p-126 && !(got[i] >= 0 && got[i] < 0x1p-126f * 1.001f)) {
      wrong = "of " + std::to_string(x[i]);
    }
  }
  report.Holds(
      "fragments", "exp2", wrong.empty() && worst < 0x1p-21,
      wrong.empty() ? "relative error " + std::to_string(worst * 0x1p21) + " x 2^-21" : wrong);
}

void CheckArithmetic(Device& device, Report& report) {
  const std::vector<float> x = InterestingFloats();
  const int64_t n = static_cast<int64_t>(x.size());
  const Buffer<float> device_x(device, x), widened(device, 4 * n), exp2(device, n),
      reciprocal(device, n);
  const Buffer<uint16_t> bf16(device, n), f16(device, n);
  const Buffer<uint8_t> e4m3(device, n);
  const Buffer<uint32_t> packed(device, n);
  ArithmeticProbe probe;
  probe.x = device_x.data();
  probe.n = n;
  probe.bf16 = bf16.data();
  probe.f16 = f16.data();
  probe.e4m3 = e4m3.data();
  probe.packed = packed.data();
  probe.widened = widened.data();
  probe.exp2 = exp2.data();
  probe.reciprocal = reciprocal.data();
  LaunchArithmeticProbe(device.stream(), 4, probe);
  device.Synchronize("the arithmetic probe");
  const Arithmetic host = OnHost(x);
  report.Same("fragments", "float32 to bf16", bf16.Get(), host.bf16);
  report.Same("fragments", "float32 to f16", f16.Get(), host.f16);
  report.Same("fragments", "float32 to e4m3", e4m3.Get(), host.e4m3);
  report.Same("fragments", "pairs to bf16", packed.Get(), host.packed);
  report.Same("fragments", "e4m3 to float32", AllBits(widened.Get()), host.widened);
  report.Same("fragments", "reciprocal", AllBits(reciprocal.Get()), host.reciprocal);
  CheckExp2(report, x, exp2.Get());
}

}  // namespace

void CheckFragments(Device& device, Report& report) {
  CheckMma<BF16>(device, report);
  CheckMma<F16>(device, report);
  for (bool transposed : {false, true}) {
    for (int valid_rows : {16, 5}) {
      CheckLoadMatrix(device, report, transposed, valid_rows);
    }
  }
  CheckArithmetic(device, report);
}

}  // namespace attnd::gpu
