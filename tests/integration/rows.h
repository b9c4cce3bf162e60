// Requests and tensors of the wire, made from rows of floats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnd/v1/attnd.pb.h"

namespace attnd {

// [rows, d_model] of that type; d_model divides the number of values.
v1::Tensor MakeTensor(const std::vector<float>& values, int64_t d_model,
                      v1::Dtype dtype = v1::DTYPE_F32);
// The tensor's values; fails the test when its shape and bytes disagree.
std::vector<float> Values(const v1::Tensor& tensor);
// Rows [begin, begin + count) of [n, d_model].
std::vector<float> RowsOf(const std::vector<float>& values, int64_t d_model, int64_t begin,
                          int64_t count);

v1::PrefillRequest PrefillOf(const std::string& session, uint32_t layer, int64_t position,
                             const v1::Tensor& hidden);

struct Part {
  std::string session;
  int64_t position = 0;
  uint32_t tokens = 1;
};
v1::DecodeRequest DecodeOf(uint32_t layer, const std::vector<Part>& parts,
                           const v1::Tensor& hidden);

v1::StepRequest StepOf(uint64_t step_id, const v1::PrefillRequest& prefill);
v1::StepRequest StepOf(uint64_t step_id, const v1::DecodeRequest& decode);
v1::StepRequest CancelOf(uint64_t step_id);

}  // namespace attnd
