#include "tests/kernels/cuda/emulated_backend.h"

#include <utility>

#include "kernels/check.h"

namespace attnd::kernels::cuda {

CudaOptions SmallOptions() {
  CudaOptions options;
  options.expand_keys = 128;
  options.partial_bytes = int64_t{1} << 20;
  return options;
}

PromptBackend::PromptBackend(const CudaOptions& options, const EmulatedOptions& device) {
  std::unique_ptr<EmulatedRuntime> runtime = MakeEmulatedRuntime(device);
  runtime_ = runtime.get();
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(std::move(runtime), options);
  Check(backend.ok(), "the backend of a test can be made");
  backend_ = *std::move(backend);
}

}  // namespace attnd::kernels::cuda
