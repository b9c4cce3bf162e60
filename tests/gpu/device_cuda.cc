// A card, through CUDA's runtime and cuBLAS.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/cuda_stream.h"
#include "tests/gpu/device.h"

namespace attnd::gpu {
namespace {

void Need(cudaError_t error, const std::string& what) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s: %s (%s)\n", what.c_str(), cudaGetErrorString(error),
                 cudaGetErrorName(error));
    std::exit(1);
  }
}

void Need(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    std::fprintf(stderr, "%s: %s\n", what, cublasGetStatusString(status));
    std::exit(1);
  }
}

DeviceInfo InfoOfFirst() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    std::fprintf(stderr, "no CUDA device: %s\n",
                 error == cudaSuccess ? "none is visible" : cudaGetErrorString(error));
    std::exit(kNoDevice);
  }
  cudaDeviceProp properties;
  Need(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  DeviceInfo info;
  info.name = properties.name;
  info.architecture = properties.major * 10 + properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.block_shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  info.multiprocessor_shared_bytes = static_cast<int64_t>(properties.sharedMemPerMultiprocessor);
  return info;
}

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kF32 ? CUDA_R_32F : dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
}

}  // namespace

struct Device::State {
  DeviceInfo info = InfoOfFirst();
  cudaStream_t handle = nullptr;
  cublasHandle_t blas = nullptr;
  std::unique_ptr<Stream> stream;
};

Device::Device() : state_(std::make_unique<State>()) {
  Need(cudaStreamCreateWithFlags(&state_->handle, cudaStreamNonBlocking), "a stream");
  Need(cublasCreate(&state_->blas), "cublasCreate");
  Need(cublasSetStream(state_->blas, state_->handle), "cublasSetStream");
  state_->stream = std::make_unique<Stream>(state_->handle);
}

Device::~Device() {
  cublasDestroy(state_->blas);
  cudaStreamDestroy(state_->handle);
}

const DeviceInfo& Device::info() const { return state_->info; }
Stream& Device::stream() { return *state_->stream; }

void* Device::Allocate(int64_t bytes) {
  void* memory = nullptr;
  const size_t size = static_cast<size_t>(bytes > 0 ? bytes : 1);
  Need(cudaMalloc(&memory, size), std::to_string(bytes) + " bytes of device memory");
  Need(cudaMemsetAsync(memory, 0xff, size, state_->handle), "cudaMemsetAsync");
  return memory;
}

void Device::Free(void* memory) {
  Synchronize("freeing memory");
  cudaFree(memory);
}

void Device::ToDevice(void* device, const void* host, int64_t bytes) {
  Need(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                       state_->handle),
       "a copy to the device");
  Synchronize("a copy to the device");
}

void Device::ToHost(void* host, const void* device, int64_t bytes) {
  Need(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                       state_->handle),
       "a copy to the host");
  Synchronize("a copy to the host");
}

// Column-major yᵀ [n][rows] = w xᵀ.
void Device::Multiply(const Product& p) {
  const float one = 1, zero = 0;
  const cudaDataType_t type = TypeOf(p.dtype);
  Need(cublasGemmStridedBatchedEx(
           state_->blas, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(p.n), static_cast<int>(p.rows),
           static_cast<int>(p.k), &one, p.w, type, static_cast<int>(p.k), p.w_batch, p.x, type,
           static_cast<int>(p.k), p.x_batch, &zero, p.y, CUDA_R_32F, static_cast<int>(p.n),
           p.y_batch, static_cast<int>(p.batch), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
       "a matrix product");
}

void Device::Synchronize(const std::string& what) {
  Need(state_->stream->TakeError(), what);
  Need(cudaStreamSynchronize(state_->handle), what);
}

}  // namespace attnd::gpu
