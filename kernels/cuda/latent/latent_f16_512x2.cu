// Latents in f16, up to 512 columns; tiles of 2 units.
#include "kernels/cuda/latent/latent_instance.cuh"

namespace attnd::kernels::cuda {

ATTND_LATENT_INSTANCE(F16, 512, 2);

}  // namespace attnd::kernels::cuda
