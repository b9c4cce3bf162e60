// Prefill, f16: keys up to 64 wide, values up to 64.
#include "kernels/cuda/gqa/gqa_kernel.cuh"

namespace attnd::kernels::cuda {

template void LaunchGqaKernel<F16, 64, 64, GqaVariant::kPrefill>(Stream&, const GqaParams&, int);

}  // namespace attnd::kernels::cuda
