// attnd with one device more: --device=emulated is the CUDA backend on the emulated device.
#include "cuda_emulation/emulated_runtime.h"
#include "kernels/cuda/cuda_backend.h"
#include "server/config.h"
#include "server/device.h"
#include "server/run.h"

namespace {

using attnd::kernels::cuda::CudaOptions;
using attnd::kernels::cuda::MakeCudaBackend;
using attnd::kernels::cuda::MakeEmulatedRuntime;

absl::Status OpenEmulated(const attnd::server::Config& config, int /*index*/,
                          attnd::server::OpenedDevice* device) {
  auto runtime = MakeEmulatedRuntime();
  device->memory = {runtime->properties().total_bytes, 0, "emulated"};
  CudaOptions options;
  options.deterministic = config.deterministic;
  options.expand_keys = 256;
  options.partial_bytes = int64_t{4} << 20;
  absl::StatusOr<std::unique_ptr<attnd::kernels::Backend>> backend =
      MakeCudaBackend(std::move(runtime), options);
  if (!backend.ok()) {
    return backend.status();
  }
  device->backend = *std::move(backend);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<attnd::server::DeviceKind> devices = {attnd::server::CpuDevice()};
  devices.push_back(
      {&attnd::kernels::CudaSupport(), "emulated", false, "bf16", 1, 0.01, OpenEmulated});
  return attnd::server::RunServer({argv + 1, argv + argc}, ATTND_VERSION, devices);
}
