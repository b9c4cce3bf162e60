// Decode, bf16: keys up to 128 wide, values up to 128.
#include "kernels/cuda/gqa/gqa_kernel.cuh"

namespace attnd::kernels::cuda {

template void LaunchGqaKernel<BF16, 128, 128, GqaVariant::kDecode>(Stream&, const GqaParams&, int);

}  // namespace attnd::kernels::cuda
