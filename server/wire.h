// Between the wire's bytes and core's steps: the copies of the payload.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attnd/v1/attnd.pb.h"
#include "core/session.h"
#include "core/step.h"
#include "kernels/dtype.h"

namespace attnd::server {

// Reads `tensor` (checked) into step->hidden as float32. A sequence of the step with a NaN or an
// infinity among its rows gets the status NOT_FINITE, unless it has failed already.
void ReadHidden(const v1::Tensor& tensor, Step* step);

// Rows [begin, begin + rows) of `values` ([.., d_model]) as a tensor [rows, d_model].
void WriteTensor(const std::vector<float>& values, int64_t begin, int64_t rows, int64_t d_model,
                 DType dtype, v1::Tensor* tensor);

// The answer to a Prefill that went well: all of it, or its rows [begin, begin + rows).
void WritePrefill(const Step& step, int64_t d_model, DType dtype, v1::PrefillResponse* response);
void WritePrefillPart(const Step& step, int64_t d_model, DType dtype, int64_t begin, int64_t rows,
                      v1::PrefillResponse* response);

// The answer to a Decode of which at least one sequence went well.
void WriteDecode(const Step& step, int64_t d_model, DType dtype, v1::DecodeResponse* response);

void WriteSession(const SessionInfo& info, v1::Session* session);

}  // namespace attnd::server
