// What can be said of a request from the request and the model alone: pure functions, run before
// anything is allocated, looked up or queued. Every error has its reason of the wire contract.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnd/v1/attnd.pb.h"
#include "core/layer_plan.h"
#include "core/step_plan.h"
#include "kernels/dtype.h"

namespace attnd::server {

// Element type on the wire; nullopt for unspecified, unknown and cache-only types.
std::optional<DType> HiddenDtype(v1::Dtype dtype);
v1::Dtype WireDtype(DType dtype);

// BAD_LAYER unless layer < number of layers.
absl::Status CheckLayer(const LayerPlan& plan, uint32_t layer);

// Rows of `hidden`, whose shape must be [n, d_model] with n >= 1, its dtype f32, bf16 or f16, and
// its data, of which there are `bytes` bytes, exactly n * d_model elements; else BAD_TENSOR.
absl::StatusOr<int64_t> CheckHidden(const LayerPlan& plan, const v1::Tensor& hidden, int64_t bytes);

// The dtype to answer in: that of `hidden` (valid) when unspecified. BAD_TENSOR for others.
absl::StatusOr<DType> CheckOutputDtype(v1::Dtype output_dtype, const v1::Tensor& hidden);

// BAD_ARGUMENT for a number that the enum does not name.
absl::StatusOr<OutputRows> CheckOutputRows(v1::OutputRows rows);

// BAD_ARGUMENT for negative numbers, PAST_MAX_SEQ_LEN when a row lies at or past max_seq_len.
// Messages name the fields of `sequence`, where they are those of one of several.
absl::Status CheckPositions(const LayerPlan& plan, std::optional<int> sequence, int64_t position,
                            int64_t rows, int64_t expected_length);

// BAD_BATCH: no sequence, a session twice, or row counts that do not add up to `rows`.
absl::Status CheckBatch(const v1::DecodeRequest& request, int64_t rows);

// Rows of a sequence: 0 on the wire means 1.
inline int64_t SequenceRows(const v1::SequenceStep& sequence) {
  return sequence.num_tokens() == 0 ? 1 : int64_t{sequence.num_tokens()};
}

// Nanoseconds of a duration, clamped to a century; BAD_ARGUMENT when it is malformed or negative.
absl::StatusOr<int64_t> CheckDuration(const std::string& field,
                                      const google::protobuf::Duration& duration);

}  // namespace attnd::server
