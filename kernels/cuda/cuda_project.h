// Projections: rows are converted to the weight's dtype, multiplied, and the product put in place.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/weights.h"
#include "kernels/params.h"

namespace attnd::kernels::cuda {

// Rows of a matrix product: always so many, padded with zeros. cuBLAS chooses its algorithm by the
// shape, so a row's bits would otherwise depend on how many there are. 128 is the tile of its
// large kernels, and up to 128 rows a product of 16 bits is bound by reading the weight.
inline constexpr int64_t kGemmRows = 128;
// Rows that are converted together.
inline constexpr int64_t kProjectRows = 1024;

// One matrix product of rows that are in place; groups side by side.
struct GemmRows {
  const void* x = nullptr;  // [groups or 1][padded][in] of the weight's dtype
  int64_t x_group = 0;      // elements between groups; 0: all read the same rows
  float* y = nullptr;       // [groups][padded][out]
  int64_t y_group = 0;
  int64_t rows = 0;  // used; padded is the next multiple of kGemmRows
};

class Projector {
 public:
  Projector(std::shared_ptr<Runtime> runtime, bool deterministic)
      : runtime_(std::move(runtime)), deterministic_(deterministic) {}

  // For weights of up to so many inputs and outputs, all groups together.
  absl::Status Prepare(int64_t max_in, int64_t max_out);

  void Project(const ProjectParams& params);
  void Multiply(const CudaWeight& weight, const GemmRows& rows);

 private:
  std::shared_ptr<Runtime> runtime_;
  const bool deterministic_;
  OwnedDeviceMemory x_, y_;
};

}  // namespace attnd::kernels::cuda
