// The CPU backend: one source compiled for many instruction sets, chosen at start.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace attnd::kernels {

struct CpuOptions {
  int threads = 1;           // workers, the calling thread included; >= 1
  std::string isa = "best";  // "best", or one of CpuIsas()
};

// The instruction sets that this build has and this machine can run, best first: "avx3" ...
std::vector<std::string> CpuIsas();

// INVALID_ARGUMENT when the instruction set is unknown here or threads < 1 or > 1024.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options);

}  // namespace attnd::kernels
