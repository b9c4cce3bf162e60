# gpu_check and gpu_bench for a card: kernels are those of the library `kernels`, the other arguments
# what else is linked. For the project in this folder and for the whole one.
include(${CMAKE_CURRENT_LIST_DIR}/sources.cmake)

function(attnd_gpu_programs root kernels)
  set(here ${root}/tests/gpu)
  list(TRANSFORM ATTND_GPU_CHECKS PREPEND ${here}/ OUTPUT_VARIABLE checks)
  attnd_cuda_library(gpu_fragments ${root} ${here}/fragments.cu)
  add_library(gpu_device STATIC ${here}/device_cuda.cc)
  target_include_directories(gpu_device PUBLIC ${root})
  target_link_libraries(gpu_device PUBLIC ${kernels} ${ARGN} CUDA::cublas CUDA::cudart_static)
  add_executable(gpu_check ${checks})
  target_link_libraries(gpu_check PRIVATE gpu_fragments gpu_device)
  add_executable(gpu_bench ${here}/bench.cc ${here}/bench_attention.cc ${here}/bench_main.cc
    ${here}/batch.cc)
  target_link_libraries(gpu_bench PRIVATE gpu_device)
endfunction()
