// The answers of steps as bytes: the small fields encoded, the rows borrowed until they are sent.
//
// A message ends with its tensor and a tensor with its data, so an answer is two slices: one of
// everything else, and the step's own float32 rows, which live until gRPC lets go of them. Rows of
// bf16 and f16 are converted once, into a buffer that is borrowed likewise.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/step.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "kernels/dtype.h"

namespace attnd::server {

// Output rows as the wire has them, any of whose rows may go into an answer.
struct AnswerRows {
  DType dtype = DType::kF32;
  int64_t d_model = 0;
  int64_t count = 0;
  grpc::Slice bytes;  // [count][d_model] of dtype
};

// Some of them, one after the other.
struct RowRange {
  int64_t begin = 0;
  int64_t count = 0;
};

// The step's output, which is empty afterwards. A value beyond f16's range becomes an infinity:
// the client chose the type.
AnswerRows TakeRows(Step* step, int64_t d_model, DType dtype);

// The answer to a Prefill, or a Decode of which at least one sequence went well: all of `rows`.
grpc::ByteBuffer EncodePrefill(const Step& step, const AnswerRows& rows);
grpc::ByteBuffer EncodeDecode(const Step& step, const AnswerRows& rows);

// The same on a Steps stream, of a Prefill a part. `more`: further parts follow.
struct StreamAnswer {
  grpc::ByteBuffer bytes;
  bool more = false;
};
StreamAnswer EncodePrefillPart(uint64_t step_id, const Step& step, const AnswerRows& rows,
                               RowRange part);
StreamAnswer EncodeStreamDecode(uint64_t step_id, const Step& step, const AnswerRows& rows);
// A step that failed.
StreamAnswer EncodeFailure(uint64_t step_id, const absl::Status& status);

}  // namespace attnd::server
