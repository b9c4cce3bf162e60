// Decode, bf16: keys up to 192 wide, values up to 128.
#include "kernels/cuda/gqa/gqa_kernel.cuh"

namespace attnd::kernels::cuda {

template void LaunchGqaKernel<BF16, 192, 128, GqaVariant::kDecode>(Stream&, const GqaParams&, int);

}  // namespace attnd::kernels::cuda
