#include "client/cpp/tensor.h"

#include <optional>
#include <string>

#include "kernels/convert.h"

namespace attnd::client {
namespace {

std::optional<DType> FromWireDtype(v1::Dtype dtype) {
  for (DType known : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (ToWireDtype(known) == dtype) {
      return known;
    }
  }
  return std::nullopt;
}

}  // namespace

v1::Dtype ToWireDtype(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return v1::DTYPE_F32;
    case DType::kBF16:
      return v1::DTYPE_BF16;
    case DType::kF16:
      return v1::DTYPE_F16;
    case DType::kInt8:  // the server refuses these two for rows
      return v1::DTYPE_INT8;
    case DType::kFp8E4M3:
      return v1::DTYPE_F8_E4M3;
  }
  return v1::DTYPE_UNSPECIFIED;
}

void EncodeRows(std::span<const float> rows, int64_t width, DType dtype, v1::Tensor* tensor) {
  const int64_t n = static_cast<int64_t>(rows.size());
  tensor->set_dtype(ToWireDtype(dtype));
  tensor->clear_shape();
  tensor->add_shape(n / width);
  tensor->add_shape(width);
  std::string* data = tensor->mutable_data();
  if (dtype == DType::kF32) {
    data->assign(reinterpret_cast<const char*>(rows.data()), rows.size_bytes());
    return;
  }
  data->resize(static_cast<size_t>(n * DTypeSize(dtype)));
  // A value that the wire's type cannot hold becomes an infinity; the server names its row.
  kernels::FromFloat(dtype, rows.data(), n, data->data());
}

absl::Status DecodeRows(const v1::Tensor& tensor, int64_t width, std::vector<float>* rows) {
  const std::optional<DType> dtype = FromWireDtype(tensor.dtype());
  const bool shaped = tensor.shape_size() == 2 && tensor.shape(1) == width &&
                      tensor.shape(0) >= 0 && tensor.shape(0) <= (int64_t{1} << 31) / width;
  if (!dtype.has_value() || !shaped ||
      static_cast<int64_t>(tensor.data().size()) != tensor.shape(0) * width * DTypeSize(*dtype)) {
    return absl::InternalError("output: the server sent a tensor that is not [m, " +
                               std::to_string(width) + "] of f32, bf16 or f16");
  }
  const int64_t n = tensor.shape(0) * width;
  const size_t before = rows->size();
  rows->resize(before + static_cast<size_t>(n));
  kernels::ToFloat(*dtype, tensor.data().data(), n, rows->data() + before);
  return absl::OkStatus();
}

}  // namespace attnd::client
