#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/ceilings.cc"
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
// clang-format off: foreach_target.h re-includes this file and must come first.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <utility>

HWY_BEFORE_NAMESPACE();
namespace attnd::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using V = hn::Vec<Floats>;
// Enough chains for a latency of 4 or 5 cycles on two ports; 12 registers of 16 at most.
inline constexpr int kChains = 12;

template <size_t... kIndex>
HWY_INLINE void Step(V* sums, V a, V b, std::index_sequence<kIndex...>) {
  ((sums[kIndex] = hn::MulAdd(sums[kIndex], a, b)), ...);
}

// FLOP done. `result` keeps the compiler from dropping the work.
double MultiplyAdd(int64_t iterations, float* result) {
  const Floats d;
  const V a = hn::Set(d, 0.999f);
  const V b = hn::Set(d, 1e-3f);
  V sums[kChains];
  for (int i = 0; i < kChains; ++i) {
    sums[i] = hn::Set(d, static_cast<float>(i));
  }
  for (int64_t i = 0; i < iterations; ++i) {
    Step(sums, a, b, std::make_index_sequence<kChains>());
  }
  V total = sums[0];
  for (int i = 1; i < kChains; ++i) {
    total = hn::Add(total, sums[i]);
  }
  *result += hn::GetLane(total);
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(iterations);
}

// Four streams: one alone does not keep enough lines in flight.
float Sum(const float* p, int64_t n) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t part = n / 4;
  V sums[8];
  for (V& sum : sums) {
    sum = hn::Zero(d);
  }
  for (int64_t i = 0; i + 2 * lanes <= part; i += 2 * lanes) {
    for (int j = 0; j < 8; ++j) {
      sums[j] = hn::Add(sums[j], hn::LoadU(d, p + (j / 2) * part + i + j % 2 * lanes));
    }
  }
  for (int j = 1; j < 8; ++j) {
    sums[0] = hn::Add(sums[0], sums[j]);
  }
  return hn::GetLane(sums[0]);
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <time.h>

#include <chrono>
#include <functional>
#include <thread>

#include "tests/bench/ceilings.h"

namespace attnd::bench {
namespace {

struct Target {
  const char* name;
  double (*multiply_add)(int64_t, float*);
  float (*sum)(const float*, int64_t);
};

std::vector<Target> Targets() {
  std::vector<Target> targets;
  const int64_t supported = static_cast<int64_t>(hwy::SupportedTargets());
#if HWY_TARGETS & HWY_AVX3
  if ((supported & HWY_AVX3) != 0) targets.push_back({"avx3", N_AVX3::MultiplyAdd, N_AVX3::Sum});
#endif
#if HWY_TARGETS & HWY_AVX2
  if ((supported & HWY_AVX2) != 0) targets.push_back({"avx2", N_AVX2::MultiplyAdd, N_AVX2::Sum});
#endif
#if HWY_TARGETS & HWY_SSE4
  if ((supported & HWY_SSE4) != 0) targets.push_back({"sse4", N_SSE4::MultiplyAdd, N_SSE4::Sum});
#endif
#if HWY_TARGETS & HWY_NEON
  if ((supported & HWY_NEON) != 0) targets.push_back({"neon", N_NEON::MultiplyAdd, N_NEON::Sum});
#endif
#if HWY_TARGETS & HWY_EMU128
  targets.push_back({"scalar", N_EMU128::MultiplyAdd, N_EMU128::Sum});
#endif
#if HWY_TARGETS & HWY_SCALAR
  targets.push_back({"scalar", N_SCALAR::MultiplyAdd, N_SCALAR::Sum});
#endif
  return targets;
}

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Seconds from the first start to the last end of f(thread). One thread is timed by its own CPU
// clock, so that other work on the machine does not count.
double TimeThreads(int threads, const std::function<void(int)>& f) {
  if (threads == 1) {
    const double begin = ThreadSeconds();
    f(0);
    return ThreadSeconds() - begin;
  }
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) {
    others.emplace_back(f, i);
  }
  f(0);
  for (std::thread& thread : others) {
    thread.join();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

volatile float g_sink = 0;

}  // namespace

std::vector<std::string> CeilingIsas() {
  std::vector<std::string> names;
  for (const Target& target : Targets()) {
    names.emplace_back(target.name);
  }
  return names;
}

double FmaRate(const std::string& isa, int threads, int64_t millions) {
  for (const Target& target : Targets()) {
    if (isa != target.name) {
      continue;
    }
    std::vector<double> flop(static_cast<size_t>(threads));
    const double seconds = TimeThreads(threads, [&](int thread) {
      float result = 0;
      flop[static_cast<size_t>(thread)] = target.multiply_add(millions * 1'000'000, &result);
      g_sink = result;
    });
    double total = 0;
    for (const double each : flop) {
      total += each;
    }
    return total / seconds;
  }
  return 0;
}

ReadCeiling::ReadCeiling(int threads) : threads_(threads), buffer_((size_t{256} << 20) / 4, 1.0f) {}

double ReadCeiling::Rate() const {
  const Target best = Targets().front();
  const int64_t part = static_cast<int64_t>(buffer_.size()) / threads_ / 256 * 256;
  const double seconds = TimeThreads(
      threads_, [&](int thread) { g_sink = best.sum(buffer_.data() + thread * part, part); });
  return static_cast<double>(part * threads_ * 4) / seconds;
}

}  // namespace attnd::bench
#endif  // HWY_ONCE
