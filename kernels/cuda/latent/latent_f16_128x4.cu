// Latents in f16, up to 128 columns; tiles of 4 units.
#include "kernels/cuda/latent/latent_instance.cuh"

namespace attnd::kernels::cuda {

ATTND_LATENT_INSTANCE(F16, 128, 4);

}  // namespace attnd::kernels::cuda
