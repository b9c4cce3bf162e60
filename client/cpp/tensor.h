// Rows of float32 to and from the wire's tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "attnd/v1/attnd.pb.h"
#include "kernels/dtype.h"

namespace attnd::client {

v1::Dtype ToWireDtype(DType dtype);

// Writes `rows` [n, width] as a tensor of `dtype`.
void EncodeRows(std::span<const float> rows, int64_t width, DType dtype, v1::Tensor* tensor);

// Appends the rows of `tensor`, which must be [m, width] (m may be 0), to `rows`. INTERNAL when
// the server sent something else.
absl::Status DecodeRows(const v1::Tensor& tensor, int64_t width, std::vector<float>* rows);

}  // namespace attnd::client
