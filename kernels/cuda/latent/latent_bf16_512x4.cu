// Latents in bf16, up to 512 columns; tiles of 4 units.
#include "kernels/cuda/latent/latent_instance.cuh"

namespace attnd::kernels::cuda {

ATTND_LATENT_INSTANCE(BF16, 512, 4);

}  // namespace attnd::kernels::cuda
