// Reading and judging of golden cases.
#include "tests/support/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "absl/strings/str_format.h"
#include "core/safetensors.h"

namespace attnd {
namespace {

absl::StatusOr<std::vector<float>> ReadF32(const SafetensorsFile& file, const std::string& name,
                                           std::vector<int64_t>* shape) {
  const SafetensorsEntry* entry = file.Find(name);
  if (entry == nullptr || entry->dtype != "F32" || entry->shape.size() != 2) {
    return absl::NotFoundError(file.path() + ": no matrix of F32 named " + name);
  }
  const int64_t bytes = entry->end - entry->begin;
  if (entry->shape[0] * entry->shape[1] * 4 != bytes) {
    return absl::InvalidArgumentError(file.path() + ": wrong size of " + name);
  }
  *shape = entry->shape;
  std::vector<float> values(bytes / 4);
  std::memcpy(values.data(), file.data(*entry), bytes);
  return values;
}

}  // namespace

std::string GoldenDir() { return ATTND_GOLDEN_DIR; }

std::vector<std::string> GoldenModels() {
  return {"apex1_tiny", "large_shape", "mha", "mqa_yarn", "odd", "small_shape", "yarn_mid"};
}

absl::StatusOr<std::vector<GoldenCase>> LoadGolden(const std::string& model_dir) {
  const auto file = SafetensorsFile::Open(model_dir + "/cases.safetensors");
  if (!file.ok()) {
    return file.status();
  }
  std::vector<GoldenCase> cases;
  for (const SafetensorsEntry& entry : (*file)->entries()) {
    GoldenCase golden;
    int used = 0;
    const int fields = std::sscanf(entry.name.c_str(), "layer%ld.len%ld.prefix%ld.x%n",
                                   &golden.layer, &golden.len, &golden.prefix, &used);
    if (fields != 3 || used != static_cast<int>(entry.name.size())) {
      continue;  // the y of a case
    }
    const std::string stem = entry.name.substr(0, entry.name.size() - 1);
    std::vector<int64_t> x_shape;
    std::vector<int64_t> y_shape;
    auto x = ReadF32(**file, stem + "x", &x_shape);
    auto y = ReadF32(**file, stem + "y", &y_shape);
    if (!x.ok() || !y.ok()) {
      return x.ok() ? y.status() : x.status();
    }
    if (x_shape != y_shape || x_shape[0] != golden.len) {
      return absl::InvalidArgumentError("shapes of case " + stem + " differ");
    }
    golden.d_model = x_shape[1];
    golden.x = *std::move(x);
    golden.y = *std::move(y);
    cases.push_back(std::move(golden));
  }
  if (cases.empty()) {
    return absl::NotFoundError(model_dir + " has no cases");
  }
  std::sort(cases.begin(), cases.end(), [](const GoldenCase& a, const GoldenCase& b) {
    return std::tie(a.layer, a.len, a.prefix) < std::tie(b.layer, b.len, b.prefix);
  });
  return cases;
}

Verdict Compare(const std::vector<float>& out, const std::vector<float>& y, double tolerance) {
  Verdict verdict;
  if (out.size() != y.size() || y.empty()) {
    verdict.text = absl::StrFormat("%d elements; expected %d", out.size(), y.size());
    return verdict;
  }
  double error = 0;
  double norm = 0;
  double largest = 0;
  size_t where = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    if (!std::isfinite(out[i]) || !std::isfinite(y[i])) {
      verdict.text = absl::StrFormat("element %d is %g; expected %g", i, out[i], y[i]);
      return verdict;
    }
    const double off = std::abs(static_cast<double>(out[i]) - static_cast<double>(y[i]));
    error += off * off;
    norm += static_cast<double>(y[i]) * static_cast<double>(y[i]);
    largest = std::max(largest, std::abs(static_cast<double>(y[i])));
    if (off > verdict.worst) {
      verdict.worst = off;
      where = i;
    }
  }
  verdict.relative = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
  const double limit = 100 * tolerance * largest;
  verdict.passed = verdict.relative <= tolerance && verdict.worst <= limit;
  verdict.text = absl::StrFormat(
      "relative error %.3g (at most %g), worst element %d off by %.3g (at most %.3g)",
      verdict.relative, tolerance, where, verdict.worst, limit);
  return verdict;
}

}  // namespace attnd
