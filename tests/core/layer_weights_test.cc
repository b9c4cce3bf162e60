// Weights on their way to the backend: what is not finite is named and refused.
#include "core/layer_weights.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

// Weights in memory: ones, but for the element given.
class FakeWeights final : public WeightSource {
 public:
  FakeWeights(std::string tensor, float value) : tensor_(std::move(tensor)), value_(value) {}
  absl::StatusOr<TensorView> Tensor(const TensorSpec& spec) override {
    std::vector<float>& data = tensors_[spec.name];
    data.assign(static_cast<size_t>(spec.out * spec.in), 1.0F);
    if (spec.name == tensor_) {
      data.back() = value_;
    }
    return TensorView{data.data(), DType::kF32, spec.out, spec.in};
  }
  void Release() override { tensors_.clear(); }
  const std::string& description() const override { return description_; }
  DType dtype() const override { return DType::kF32; }

 private:
  const std::string tensor_;
  const float value_;
  const std::string description_ = "memory";
  std::map<std::string, std::vector<float>> tensors_;
};

std::string Refusal(const std::string& tensor, float value, std::optional<DType> dtype) {
  const LayerPlan plan = MakeLayerPlan(TinyConfig(8, 2));
  FakeWeights weights(tensor, value);
  const auto backend = *kernels::MakeCpuBackend({1, "best"});
  const absl::Status packed = PackWeights(plan, &weights, dtype, backend.get()).status();
  EXPECT_EQ(packed, CheckWeights(plan, &weights, dtype));
  return packed.ok() ? "accepted" : std::string(packed.message());
}

TEST(LayerWeightsTest, WhatIsNotFiniteIsNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const char* tensor : {"blocks.0.attn.W_O.weight", "blocks.1.attn.W_UK.weight"}) {
    for (float value : {nan, infinity, -infinity}) {
      for (std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::kF16)}) {
        EXPECT_NE(Refusal(tensor, value, dtype).find(tensor), std::string::npos);
      }
    }
    EXPECT_EQ(Refusal(tensor, 1e30F, std::nullopt), "accepted");
    EXPECT_EQ(Refusal(tensor, 1e30F, DType::kBF16), "accepted");
    EXPECT_NE(Refusal(tensor, 1e30F, DType::kF16).find("f16"), std::string::npos);
  }
}

}  // namespace
}  // namespace attnd
