#include "kernels/cuda/latent/latent.h"

#include <algorithm>
#include <type_traits>

#include "kernels/check.h"
#include "kernels/cuda/latent/latent_instances.h"
#include "kernels/cuda/latent/latent_shape.h"

namespace attnd::kernels::cuda {
namespace {

constexpr int32_t kSmallWidth = 128;
constexpr int32_t kLargeWidth = 512;

bool SupportsShape(DType cache, const LatentParams& p) {
  if (cache != DType::kBF16 && cache != DType::kF16 && cache != DType::kFp8E4M3) {
    return false;
  }
  const int32_t piece = cache == DType::kFp8E4M3 ? 16 : 8;  // elements in 16 bytes
  const bool latent = p.d_latent > 0 && p.d_latent <= kLargeWidth && p.d_latent % piece == 0;
  const bool rope = p.d_rope >= 0 && p.d_rope <= kLatentRopeWidth && p.d_rope % 8 == 0;
  // Every row begins at a multiple of 16 bytes, scales of four rows likewise.
  const bool aligned = (p.latent_offset | p.latent_stride | p.rope_offset | p.rope_stride |
                        (cache == DType::kFp8E4M3 ? p.scales : 0)) %
                           16 ==
                       0;
  return latent && rope && aligned && p.heads_kv > 0 && p.group > 0;
}

template <typename Cache>
void LaunchFor(Stream& stream, const LatentPlan& plan, const LatentLaunch& launch, int32_t blocks) {
  if (plan.width == kSmallWidth) {
    LaunchLatentKernel<Cache, kSmallWidth, 4>(stream, launch, blocks, plan.shared_bytes);
  } else if (plan.units == 4) {
    LaunchLatentKernel<Cache, kLargeWidth, 4>(stream, launch, blocks, plan.shared_bytes);
  } else {
    LaunchLatentKernel<Cache, kLargeWidth, 2>(stream, launch, blocks, plan.shared_bytes);
  }
}

}  // namespace

LatentPlan PlanLatent(DType cache, const LatentParams& params, int64_t shared_limit) {
  LatentPlan plan;
  if (!SupportsShape(cache, params)) {
    return plan;
  }
  plan.width = params.d_latent <= kSmallWidth ? kSmallWidth : kLargeWidth;
  for (const int32_t units : {4, 2}) {
    plan.rope_heads = std::min(units, params.heads_kv);
    const LatentShared shared =
        LatentSharedOf(cache == DType::kFp8E4M3, plan.width, units, plan.rope_heads);
    plan.stages = kLatentMaxStages;
    while (plan.stages > 1 && shared.Total(plan.stages) > shared_limit) {
      --plan.stages;
    }
    if (plan.stages > 1) {
      plan.units = units;
      plan.shared_bytes = shared.Total(plan.stages);
      return plan;
    }
    if (plan.width == kSmallWidth) {
      break;  // made for tiles of four units alone
    }
  }
  return LatentPlan();
}

TileShape LatentTiles(const LatentPlan& plan, const LatentParams& params) {
  return {params.heads_kv, params.group, kLatentUnitRows, plan.units};
}

void LaunchLatent(Stream& stream, DType cache, const LatentPlan& plan, const LatentParams& params,
                  int32_t blocks) {
  Check(plan.ok(), "a shape without a kernel is sent to the fallback");
  const LatentLaunch launch{params, plan.stages, plan.rope_heads};
  if (cache == DType::kBF16) {
    LaunchFor<BF16>(stream, plan, launch, blocks);
  } else if (cache == DType::kF16) {
    LaunchFor<F16>(stream, plan, launch, blocks);
  } else {
    LaunchFor<E4M3>(stream, plan, launch, blocks);
  }
}

}  // namespace attnd::kernels::cuda
