#include "server/builtin_devices.h"

#ifdef ATTND_CUDA
#include "kernels/cuda/cuda_backend.h"
#include "server/config.h"
#endif

namespace attnd::server {
#ifdef ATTND_CUDA
namespace {

absl::Status OpenCuda(const Config& config, int index, OpenedDevice* device) {
  absl::StatusOr<std::unique_ptr<kernels::cuda::Runtime>> runtime =
      kernels::cuda::OpenCudaRuntime(index);
  if (!runtime.ok()) {
    return runtime.status();
  }
  const int64_t total = (*runtime)->properties().total_bytes;
  device->memory = {total, total - (*runtime)->FreeBytes(), (*runtime)->properties().name};
  kernels::cuda::CudaOptions options;
  options.deterministic = config.deterministic;
  absl::StatusOr<std::unique_ptr<kernels::Backend>> backend =
      kernels::cuda::MakeCudaBackend(*std::move(runtime), options);
  if (!backend.ok()) {
    return backend.status();
  }
  device->backend = *std::move(backend);
  return absl::OkStatus();
}

}  // namespace
#endif

std::vector<DeviceKind> BuiltInDevices() {
  std::vector<DeviceKind> kinds;
#ifdef ATTND_CUDA
  // By its data sheet a large card takes about 5 ms for a chunk of 2 TFLOP, as a CPU some 50 for 5
  // GFLOP. Nothing else uses the card's memory: what the cache leaves is for batches.
  kinds.push_back({&kernels::CudaSupport(), "cuda", true, "bf16", 2000, 0.75, OpenCuda});
#endif
  kinds.push_back(CpuDevice());
  return kinds;
}

}  // namespace attnd::server
