// What runs where, as a table: GetModel, the README and the errors about devices and dtypes read
// it. A device that is not in this build has no row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace attnd::kernels {

struct SupportRow {
  const char* device;                // "cpu", as --device names it
  std::vector<DType> weight_dtypes;  // as stored; never converted
  std::vector<DType> cache_dtypes;
  DType compute_dtype;
  std::vector<const char*> layer_kinds;  // "local", "global"
  int64_t max_group;                     // query heads per KV head; 0 = any
  int64_t max_width;                     // of a head or latent; 0 = any
};

const std::vector<SupportRow>& SupportMatrix();

// What the CUDA backend takes; in the matrix where it is built for a card (ATTND_CUDA). Its tests
// run without one.
const SupportRow& CudaSupport();

// Null when the device is not in this build.
const SupportRow* FindDevice(const std::string& device);

// Empty when the combination runs; else one line that says what is supported, such as
// "device cuda is not in this build; supported: cpu".
std::string Unsupported(const std::string& device, DType weight_dtype, DType cache_dtype);

// "f32, bf16, f16"
std::string DTypeList(const std::vector<DType>& dtypes);

// The table as Markdown, for the README.
std::string SupportMatrixMarkdown();

}  // namespace attnd::kernels
