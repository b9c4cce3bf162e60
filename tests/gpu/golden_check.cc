// The golden cases through whole layers, whole and in chunks.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "tests/gpu/checks.h"
#include "tests/gpu/golden_data.h"
#include "tests/gpu/layer_runner.h"

namespace attnd::gpu {
namespace {

struct Storage {
  DType cache;
  DType weights;
  double tolerance;  // README in tests/golden
};
constexpr Storage kStorages[] = {
    {DType::kF32, DType::kF32, 1e-5},
    {DType::kBF16, DType::kBF16, 2e-2},
    {DType::kF16, DType::kF16, 2e-2},
    {DType::kFp8E4M3, DType::kBF16, 8e-2},
};

// The relative error (Frobenius); infinity when a value is not finite or one is off by more than
// 100 tolerances of the largest.
double ErrorOf(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  double difference = 0, norm = 0, worst = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (i >= got.size() || !std::isfinite(got[i])) {
      return INFINITY;
    }
    const double off = std::abs(double{got[i]} - want[i]);
    difference += off * off;
    norm += double{want[i]} * want[i];
    worst = std::max(worst, off);
    largest = std::max(largest, std::abs(double{want[i]}));
  }
  return worst <= 100 * tolerance * largest ? std::sqrt(difference / norm) : INFINITY;
}

// All rows at once; then a prefill of half of them (the prefix at least), three single rows, and
// what is left.
std::vector<std::vector<int64_t>> ChunkingsOf(const GoldenCase& c) {
  std::vector<int64_t> ends;
  const int64_t first = std::clamp<int64_t>(std::max(c.prefix, c.rows / 2), 1, c.rows);
  for (int64_t end = first; end < c.rows && end < first + 4; ++end) {
    ends.push_back(end);
  }
  ends.push_back(c.rows);
  if (ends.size() == 1) {
    return {ends};
  }
  return {{c.rows}, ends};
}

void CheckLayer(Device& device, Report& report, const GoldenModel& model, const GoldenLayer& layer,
                const Storage& storage, bool expanded, int64_t max_rows) {
  LayerRunner runner(device, model, layer, {storage.cache, storage.weights, expanded});
  double worst = 0;
  int cases = 0;
  for (const GoldenCase& c : layer.cases) {
    if (c.rows > max_rows) {
      continue;
    }
    for (const std::vector<int64_t>& ends : ChunkingsOf(c)) {
      worst = std::max(worst, ErrorOf(runner.Run(c, ends), c.y, storage.tolerance));
      ++cases;
    }
  }
  char detail[128];
  std::snprintf(detail, sizeof detail, "worst of %d: %.2e, tolerance %.0e, %s", cases, worst,
                storage.tolerance, runner.tuned() ? "tensor cores" : "plain");
  const std::string form = !layer.global ? " local" : expanded ? " expanded" : " absorbed";
  report.Holds(
      "golden",
      model.name + " layer " + std::to_string(layer.index) + form + " " + DTypeName(storage.cache),
      cases > 0 && worst <= storage.tolerance, detail);
}

}  // namespace

void CheckGolden(Device& device, Report& report, Size size, const std::string& folder) {
  const int64_t max_rows = size == Size::kFull ? INT64_MAX : 40;
  for (const GoldenModel& model : LoadGolden(folder)) {
    for (const GoldenLayer& layer : model.layers) {
      const bool any = std::any_of(layer.cases.begin(), layer.cases.end(),
                                   [&](const GoldenCase& c) { return c.rows <= max_rows; });
      for (const Storage& storage : kStorages) {
        for (bool expanded : {false, true}) {
          if (any && (layer.global || !expanded)) {
            CheckLayer(device, report, model, layer, storage, expanded, max_rows);
          }
        }
      }
    }
  }
}

}  // namespace attnd::gpu
