# The kernels' sources, relative to this folder: once for the library, once for tests/gpu. The check
# of the compiled code (tests/cuda_compile) fails when a .cu file is not listed.
set(ATTND_CUDA_KERNELS
  schedule.cu
  elementwise/append.cu
  elementwise/expand.cu
  elementwise/pack_rows.cu
  elementwise/rope.cu
  gqa/gqa_bf16_128_128_decode.cu
  gqa/gqa_bf16_128_128_prefill.cu
  gqa/gqa_bf16_192_128_decode.cu
  gqa/gqa_bf16_192_128_prefill.cu
  gqa/gqa_bf16_64_64_decode.cu
  gqa/gqa_bf16_64_64_prefill.cu
  gqa/gqa_f16_128_128_decode.cu
  gqa/gqa_f16_128_128_prefill.cu
  gqa/gqa_f16_192_128_decode.cu
  gqa/gqa_f16_192_128_prefill.cu
  gqa/gqa_f16_64_64_decode.cu
  gqa/gqa_f16_64_64_prefill.cu
  latent/latent_bf16_128x4.cu
  latent/latent_bf16_512x2.cu
  latent/latent_bf16_512x4.cu
  latent/latent_e4m3_128x4.cu
  latent/latent_e4m3_512x2.cu
  latent/latent_e4m3_512x4.cu
  latent/latent_f16_128x4.cu
  latent/latent_f16_512x2.cu
  latent/latent_f16_512x4.cu
  plain/plain_attention.cu)

# Plain C++ beside them: what a kernel can do, its launch.
set(ATTND_CUDA_LAUNCHERS
  gqa/gqa.cc
  latent/latent.cc)
