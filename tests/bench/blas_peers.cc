#include "tests/bench/blas_peers.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/bench/kernel_cases.h"

namespace attnd::bench {
namespace {

// y = x Wᵀ, W [width][width] as stored.
void Sgemm(benchmark::State& state, int rows, int width) {
  const std::vector<float> x = Values(int64_t{rows} * width, 1);
  const std::vector<float> w = Values(int64_t{width} * width, 5);
  std::vector<float> y(x.size());
  for (auto _ : state) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, width, width, 1, x.data(), width,
                w.data(), width, 0, y.data(), width);
  }
  Count(state, 2.0 * rows * width * width, 4.0 * width * width);
}

void Softmax(float* row, int n) {
  const float max = *std::max_element(row, row + n);
  float sum = 0;
  for (int i = 0; i < n; ++i) {
    row[i] = std::exp(row[i] - max);
    sum += row[i];
  }
  for (int i = 0; i < n; ++i) {
    row[i] /= sum;
  }
}

// One token of GQA 128/8/128 against `keys` contiguous float32 keys and values a KV head.
void Gqa(benchmark::State& state, int keys) {
  constexpr int kHeads = 128, kKvHeads = 8, kGroup = kHeads / kKvHeads, kWidth = 128;
  const std::vector<float> query = Values(kHeads * kWidth, 1);
  const std::vector<float> key = Values(int64_t{kKvHeads} * keys * kWidth, 2);
  const std::vector<float> value = Values(int64_t{kKvHeads} * keys * kWidth, 3);
  std::vector<float> scores(static_cast<size_t>(kGroup) * static_cast<size_t>(keys));
  std::vector<float> output(query.size());
  const float scale = 1 / std::sqrt(static_cast<float>(kWidth));
  for (auto _ : state) {
    for (int head = 0; head < kKvHeads; ++head) {
      const int64_t at = int64_t{head} * keys * kWidth;
      const int q = head * kGroup * kWidth;
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, kGroup, keys, kWidth, scale,
                  query.data() + q, kWidth, key.data() + at, kWidth, 0, scores.data(), keys);
      for (int row = 0; row < kGroup; ++row) {
        Softmax(scores.data() + int64_t{row} * keys, keys);
      }
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kGroup, kWidth, keys, 1, scores.data(),
                  keys, value.data() + at, kWidth, 0, output.data() + q, kWidth);
    }
  }
  Count(state, 4.0 * kHeads * kWidth * keys, 8.0 * kKvHeads * kWidth * keys);
}

}  // namespace

void AddBlasPeers(const Setting& setting) {
  openblas_set_num_threads(setting.threads);
  for (const int rows : {1, 4, 16, 64, 128, 512}) {
    Add(setting, "openblas_sgemm/" + std::to_string(rows),
        [=](benchmark::State& state) { Sgemm(state, rows, 4096); });
  }
  for (const int keys : {4096, 8192}) {
    Add(setting, "openblas_gqa/" + std::to_string(keys),
        [=](benchmark::State& state) { Gqa(state, keys); });
  }
}

}  // namespace attnd::bench
