#include "kernels/cpu/packed_panels.h"

#include <algorithm>
#include <cstring>

#include "kernels/check.h"

namespace attnd::kernels {
namespace {

// One group: element (n, k) of the source lies at n * out_step + k * in_step.
template <typename Stored>
void PackGroup(const uint8_t* src, int64_t out, int64_t in, int64_t out_step, int64_t in_step,
               Stored* panels) {
  for (int64_t first = 0; first < out; first += kPanel) {
    Stored* panel = panels + first * in;
    const int64_t count = std::min(kPanel, out - first);
    std::fill_n(panel, count == kPanel ? 0 : in * kPanel, Stored());
    for (int64_t n = 0; n < count; ++n) {
      const uint8_t* from = src + (first + n) * out_step * static_cast<int64_t>(sizeof(Stored));
      for (int64_t k = 0; k < in; ++k) {
        std::memcpy(panel + k * kPanel + n,
                    from + k * in_step * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
      }
    }
  }
}

template <typename Stored>
void PackGroups(const WeightView& weight, uint8_t* memory) {
  const int64_t out_step = weight.transposed ? 1 : weight.in;
  const int64_t in_step = weight.transposed ? weight.out : 1;
  const int64_t source_bytes = weight.out * weight.in * static_cast<int64_t>(sizeof(Stored));
  const int64_t packed = RoundUp(weight.out, kPanel) * weight.in;
  for (int64_t group = 0; group < weight.groups; ++group) {
    PackGroup(static_cast<const uint8_t*>(weight.data) + group * source_bytes, weight.out,
              weight.in, out_step, in_step, reinterpret_cast<Stored*>(memory) + group * packed);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackedPanels>> PackPanels(const WeightView& weight) {
  Check(weight.groups >= 1 && weight.out >= 1 && weight.in >= 1, "a weight has elements");
  Check(!HasRowScales(weight.dtype), "int8 and fp8_e4m3 are for caches alone");
  auto packed = std::make_unique<PackedPanels>();
  packed->dtype_ = weight.dtype;
  packed->groups_ = weight.groups;
  packed->out_ = weight.out;
  packed->in_ = weight.in;
  const int64_t padded = weight.out > INT64_MAX - kPanel ? -1 : RoundUp(weight.out, kPanel);
  const int64_t elements = CheckedProduct(CheckedProduct(weight.groups, padded), weight.in);
  const absl::Status status =
      packed->memory_.Allocate("packed weights", CheckedProduct(elements, DTypeSize(weight.dtype)));
  if (!status.ok()) {
    return status;
  }
  if (weight.dtype == DType::kF32) {
    PackGroups<float>(weight, packed->memory_.get());
  } else {
    PackGroups<uint16_t>(weight, packed->memory_.get());
  }
  return packed;
}

}  // namespace attnd::kernels
