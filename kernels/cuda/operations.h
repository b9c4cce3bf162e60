// What a layer does on the device, as data: launched at once, or compared with what was done before
// and run again as a graph. Everything that changes while a history grows lies in device memory
// (device_batch.h), not here.
#pragma once

#include <variant>

#include "kernels/cuda/device_batch.h"
#include "kernels/params.h"

namespace attnd::kernels::cuda {

struct LocalOperation {
  LocalShape shape;
  DType dtype = DType::kF32;
  float scale = 0;
  DeviceBatch batch;
  const float* query = nullptr;
  float* output = nullptr;

  bool operator==(const LocalOperation&) const = default;
};

struct LatentOperation {
  GlobalShape shape;
  DType dtype = DType::kF32;
  float scale = 0;
  DeviceBatch batch;
  const float* query = nullptr;
  const float* rope_query = nullptr;
  float* output = nullptr;

  bool operator==(const LatentOperation&) const = default;
};

using Operation = std::variant<ProjectParams, RopeParams, AppendLocalParams, AppendGlobalParams,
                               LocalOperation, LatentOperation>;

}  // namespace attnd::kernels::cuda
