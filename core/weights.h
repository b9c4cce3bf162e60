// Attention weights from safetensors files (mapped, only the tensors that are needed) or from a
// seed (the same bits on every machine).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/layer_plan.h"
#include "kernels/dtype.h"

namespace attnd {

// A tensor [out, in], row-major, valid as long as its WeightSource.
struct TensorView {
  const void* data = nullptr;  // any alignment
  DType dtype = DType::kF32;
  int64_t out = 0;
  int64_t in = 0;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // A tensor by spec; its shape has been checked. For seeds the data is made on the call and
  // stays until Release().
  virtual absl::StatusOr<TensorView> Tensor(const TensorSpec& spec) = 0;
  // Lets go of what Tensor() made so far (a mapping stays).
  virtual void Release() = 0;
  // "random:1", or the file.
  virtual const std::string& description() const = 0;
  // The dtype that most of the needed tensors are stored in; what GetModel reports for
  // --weight_dtype=file.
  virtual DType dtype() const = 0;
  // Whether description() alone decides every bit, as a seed does and a file does not.
  virtual bool generated() const { return false; }
};

// `source` is "random:SEED" or the path of a safetensors file or of an index JSON of shards.
// Every tensor that `plan` needs is looked up and checked here: name, dtype, shape, offsets.
// Errors are one line and name the file and the tensor.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeights(const std::string& source,
                                                          const LayerPlan& plan);

// "xxh3:...": 128 bits over the configuration and the weights' bytes, the identity of a model.
absl::StatusOr<std::string> Fingerprint(const LayerPlan& plan, WeightSource& weights);

}  // namespace attnd
