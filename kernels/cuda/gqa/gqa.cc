#include "kernels/cuda/gqa/gqa.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/gqa/config.h"

namespace attnd::kernels::cuda {
namespace {

struct Widths {
  int key = 0;
  int value = 0;
};

// The smallest instantiation that holds the shape.
Widths WidthsOf(const GqaParams& params) {
  const int key = params.content_width + params.rope_width;
  if (key <= 64 && params.value_width <= 64) {
    return {64, 64};
  }
  return key <= 128 ? Widths{128, 128} : Widths{192, 128};
}

// Calls f with the configuration as a value.
template <typename F>
auto WithConfig(const GqaParams& params, GqaVariant variant, const F& f) {
  const bool decode = variant == GqaVariant::kDecode;
  switch (WidthsOf(params).key) {
    case 64:
      return decode ? f(GqaConfig<64, 64, GqaVariant::kDecode>())
                    : f(GqaConfig<64, 64, GqaVariant::kPrefill>());
    case 128:
      return decode ? f(GqaConfig<128, 128, GqaVariant::kDecode>())
                    : f(GqaConfig<128, 128, GqaVariant::kPrefill>());
    default:
      return decode ? f(GqaConfig<192, 128, GqaVariant::kDecode>())
                    : f(GqaConfig<192, 128, GqaVariant::kPrefill>());
  }
}

bool Aligned(const HeadRows& rows) {
  return rows.offset % 16 == 0 && rows.head_step % 16 == 0 && rows.stride % 16 == 0;
}

}  // namespace

bool GqaSupports(const GqaParams& params, DType element) {
  const int key = params.content_width + params.rope_width;
  return (element == DType::kBF16 || element == DType::kF16) && params.content_width > 0 &&
         params.content_width % 8 == 0 && params.rope_width >= 0 && params.rope_width % 8 == 0 &&
         key <= 192 && params.value_width > 0 && params.value_width % 8 == 0 &&
         params.value_width <= 128 && params.heads_kv > 0 && params.group >= 1 &&
         params.group <= 128 && Aligned(params.keys) && Aligned(params.values) &&
         params.scale_log2 > 0;
}

GqaVariant ChooseGqaVariant(const GqaParams& params, int64_t rows) {
  return params.carry == nullptr && rows * params.group <= 16 ? GqaVariant::kDecode
                                                              : GqaVariant::kPrefill;
}

TileShape GqaTiles(const GqaParams& params, GqaVariant variant) {
  TileShape shape;
  shape.heads_kv = params.heads_kv;
  shape.group = params.group;
  shape.unit_rows = WithConfig(params, variant, [](auto config) { return config.kRows; });
  return shape;
}

int GqaSharedBytes(const GqaParams& params, GqaVariant variant) {
  return WithConfig(params, variant, [](auto config) { return config.kSharedBytes; });
}

int GqaBlocksPerMultiprocessor(const GqaParams& params, GqaVariant variant,
                               int64_t multiprocessor_shared_bytes) {
  // The system keeps 1 KiB for each block; 128 threads of up to 255 registers fit twice.
  const int64_t held = multiprocessor_shared_bytes / (GqaSharedBytes(params, variant) + 1024);
  return static_cast<int>(std::clamp<int64_t>(held, 1, 2));
}

void LaunchGqa(Stream& stream, GqaVariant variant, DType element, const GqaParams& params,
               int grid) {
  Check(GqaSupports(params, element), "the tensor-core kernel is asked for what it supports");
  Check(params.carry == nullptr || variant == GqaVariant::kPrefill,
        "state is carried by the prefill variant");
  WithConfig(params, variant, [&](auto config) {
    using C = decltype(config);
    if (element == DType::kBF16) {
      LaunchGqaKernel<BF16, C::kKeyWidth, C::kValueWidth, C::kVariant>(stream, params, grid);
    } else {
      LaunchGqaKernel<F16, C::kKeyWidth, C::kValueWidth, C::kVariant>(stream, params, grid);
    }
  });
}

}  // namespace attnd::kernels::cuda
