// The instantiations of the absorbed MLA kernel, each in a file of its own.
#pragma once

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/element.cuh"

namespace attnd::kernels::cuda {

class Stream;

struct LatentLaunch {
  LatentParams params;
  int32_t stages = 0;      // 2 to kLatentMaxStages
  int32_t rope_heads = 0;  // places for rope keys in a stage
};

template <typename Cache, int kWidth, int kUnits>
void LaunchLatentKernel(Stream& stream, const LatentLaunch& launch, int blocks, int shared_bytes);

#define ATTND_LATENT_INSTANCE(Cache, width, units) \
  template void LaunchLatentKernel<Cache, width, units>(Stream&, const LatentLaunch&, int, int)

extern ATTND_LATENT_INSTANCE(BF16, 128, 4);
extern ATTND_LATENT_INSTANCE(BF16, 512, 2);
extern ATTND_LATENT_INSTANCE(BF16, 512, 4);
extern ATTND_LATENT_INSTANCE(E4M3, 128, 4);
extern ATTND_LATENT_INSTANCE(E4M3, 512, 2);
extern ATTND_LATENT_INSTANCE(E4M3, 512, 4);
extern ATTND_LATENT_INSTANCE(F16, 128, 4);
extern ATTND_LATENT_INSTANCE(F16, 512, 2);
extern ATTND_LATENT_INSTANCE(F16, 512, 4);

}  // namespace attnd::kernels::cuda
