// The generator, and the source that keeps what it made until Release().
#include "core/random_weights.h"

// The hash of sixteen bytes is ten instructions; a call into the library would be most of its cost.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cmath>
#include <map>
#include <new>

#include "absl/strings/numbers.h"
#include "core/error.h"
#include "core/text.h"

namespace attnd {
namespace {

static_assert(std::endian::native == std::endian::little, "the hashed bytes are little-endian");

class RandomWeights final : public WeightSource {
 public:
  explicit RandomWeights(uint64_t seed)
      : seed_(seed), description_("random:" + std::to_string(seed)) {}

  absl::StatusOr<TensorView> Tensor(const TensorSpec& spec) override {
    std::unique_ptr<float[]>& data = made_[spec.name];
    if (data == nullptr) {
      const int64_t count = spec.out * spec.in;
      data.reset(new (std::nothrow) float[count]);
      if (data == nullptr) {
        return absl::ResourceExhaustedError("weights " + description_ + ": tensor '" + spec.name +
                                            "' takes " + std::to_string(count * 4) +
                                            " bytes, more than the memory gives");
      }
      FillRandomWeights(seed_, spec.name, spec.in, count, data.get());
    }
    return TensorView{data.get(), DType::kF32, spec.out, spec.in};
  }

  void Release() override { made_.clear(); }
  const std::string& description() const override { return description_; }
  DType dtype() const override { return DType::kF32; }
  bool generated() const override { return true; }

 private:
  uint64_t seed_;
  std::string description_;
  std::map<std::string, std::unique_ptr<float[]>> made_;
};

}  // namespace

void FillRandomWeights(uint64_t seed, const std::string& name, int64_t in, int64_t count,
                       float* out) {
  const float step = static_cast<float>(1.5 * std::sqrt(3.0 / static_cast<double>(in)) / (1 << 24));
  uint64_t block[2] = {XXH3_64bits_withSeed(name.data(), name.size(), seed), 0};
  for (int64_t i = 0; i < count; ++i) {
    block[1] = static_cast<uint64_t>(i);
    const int32_t u = static_cast<int32_t>(XXH3_64bits(block, sizeof(block)) >> 40);
    out[i] = static_cast<float>(2 * u + 1 - (1 << 24)) * step;
  }
}

absl::StatusOr<std::unique_ptr<WeightSource>> OpenRandomWeights(const std::string& source) {
  const std::string digits = source.substr(source.find(':') + 1);
  uint64_t seed = 0;
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos ||
      !absl::SimpleAtoi(digits, &seed)) {
    return MakeError(Reason::kBadArgument, "weights " + Quoted(source) +
                                               " have no seed; expected random:SEED with a whole "
                                               "number from 0 to 18446744073709551615");
  }
  return std::unique_ptr<WeightSource>(new RandomWeights(seed));
}

}  // namespace attnd
