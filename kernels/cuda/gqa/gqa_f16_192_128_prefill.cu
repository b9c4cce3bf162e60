// Prefill, f16: keys up to 192 wide, values up to 128.
#include "kernels/cuda/gqa/gqa_kernel.cuh"

namespace attnd::kernels::cuda {

template void LaunchGqaKernel<F16, 192, 128, GqaVariant::kPrefill>(Stream&, const GqaParams&, int);

}  // namespace attnd::kernels::cuda
