// Requests and tensors of the wire, made from rows of floats.
#include "tests/integration/rows.h"

#include <gtest/gtest.h>

#include "kernels/check.h"
#include "kernels/convert.h"

namespace attnd {
namespace {

DType FromWire(v1::Dtype dtype) {
  Check(dtype >= v1::DTYPE_F32 && dtype <= v1::DTYPE_F16, "a dtype of hidden states");
  return dtype == v1::DTYPE_F32    ? DType::kF32
         : dtype == v1::DTYPE_BF16 ? DType::kBF16
                                   : DType::kF16;
}

}  // namespace

v1::Tensor MakeTensor(const std::vector<float>& values, int64_t d_model, v1::Dtype dtype) {
  const auto n = static_cast<int64_t>(values.size());
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.add_shape(n / d_model);
  tensor.add_shape(d_model);
  const DType type = FromWire(dtype);
  tensor.mutable_data()->resize(static_cast<size_t>(n * DTypeSize(type)));
  kernels::FromFloat(type, values.data(), n, tensor.mutable_data()->data());
  return tensor;
}

std::vector<float> Values(const v1::Tensor& tensor) {
  EXPECT_EQ(tensor.shape_size(), 2);
  const int64_t n = tensor.shape_size() == 2 ? tensor.shape(0) * tensor.shape(1) : 0;
  const DType type = FromWire(tensor.dtype());
  EXPECT_EQ(static_cast<int64_t>(tensor.data().size()), n * DTypeSize(type));
  if (static_cast<int64_t>(tensor.data().size()) != n * DTypeSize(type)) {
    return {};
  }
  std::vector<float> values(static_cast<size_t>(n));
  kernels::ToFloat(type, tensor.data().data(), n, values.data());
  return values;
}

std::vector<float> RowsOf(const std::vector<float>& values, int64_t d_model, int64_t begin,
                          int64_t count) {
  const auto from = values.begin() + begin * d_model;
  return {from, from + count * d_model};
}

v1::PrefillRequest PrefillOf(const std::string& session, uint32_t layer, int64_t position,
                             const v1::Tensor& hidden) {
  v1::PrefillRequest request;
  request.set_session_id(session);
  request.set_layer(layer);
  request.set_position(position);
  *request.mutable_hidden() = hidden;
  return request;
}

v1::DecodeRequest DecodeOf(uint32_t layer, const std::vector<Part>& parts,
                           const v1::Tensor& hidden) {
  v1::DecodeRequest request;
  request.set_layer(layer);
  for (const Part& part : parts) {
    v1::SequenceStep* step = request.add_sequences();
    step->set_session_id(part.session);
    step->set_position(part.position);
    step->set_num_tokens(part.tokens);
  }
  *request.mutable_hidden() = hidden;
  return request;
}

v1::StepRequest StepOf(uint64_t step_id, const v1::PrefillRequest& prefill) {
  v1::StepRequest request;
  request.set_step_id(step_id);
  *request.mutable_prefill() = prefill;
  return request;
}

v1::StepRequest StepOf(uint64_t step_id, const v1::DecodeRequest& decode) {
  v1::StepRequest request;
  request.set_step_id(step_id);
  *request.mutable_decode() = decode;
  return request;
}

v1::StepRequest CancelOf(uint64_t step_id) {
  v1::StepRequest request;
  request.set_step_id(1'000'000 + step_id);
  request.set_cancel_step_id(step_id);
  return request;
}

}  // namespace attnd
