// What a file that instantiates the absorbed MLA kernel includes.
#pragma once

#include "kernels/cuda/latent/latent_instances.h"
#include "kernels/cuda/latent/latent_kernel.cuh"

namespace attnd::kernels::cuda {

template <typename Cache, int kWidth, int kUnits>
void LaunchLatentKernel(Stream& stream, const LatentLaunch& launch, int blocks, int shared_bytes) {
  using C = LatentConfig<Cache, kWidth, kUnits>;
  Launch(stream, LatentKernel<C>, {blocks, 1, 1}, C::kThreads, shared_bytes, launch);
}

}  // namespace attnd::kernels::cuda
