// What can be said of a request from the request and the model alone.
#include "server/validate.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/error.h"
#include "core/text.h"

namespace attnd::server {
namespace {

constexpr int64_t kCentury = int64_t{100} * 366 * 86'400;  // seconds

// "[3, 64]", shortened: a hostile shape may have a million dimensions.
std::string ShapeText(const v1::Tensor& tensor) {
  const int shown = std::min(tensor.shape_size(), 6);
  const auto begin = tensor.shape().begin();
  return absl::StrCat("[", absl::StrJoin(begin, begin + shown, ", "),
                      shown < tensor.shape_size() ? ", ..." : "", "]");
}

std::string DtypeText(v1::Dtype dtype) {
  const std::string& name = v1::Dtype_Name(dtype);
  return name.empty() ? std::to_string(static_cast<int>(dtype)) : name;
}

// The start of a field's name in a message about it.
std::string Where(std::optional<int> sequence) {
  return sequence.has_value() ? absl::StrCat("sequences[", *sequence, "].") : "";
}

// A session that two of the sequences name; null when there is none.
const std::string* ComesTwice(
    const google::protobuf::RepeatedPtrField<v1::SequenceStep>& sequences) {
  if (sequences.size() < 2) {
    return nullptr;
  }
  std::unordered_set<std::string_view> seen;
  seen.reserve(static_cast<size_t>(sequences.size()));
  for (const v1::SequenceStep& sequence : sequences) {
    if (!seen.insert(sequence.session_id()).second) {
      return &sequence.session_id();
    }
  }
  return nullptr;
}

}  // namespace

std::optional<DType> HiddenDtype(v1::Dtype dtype) {
  switch (dtype) {
    case v1::DTYPE_F32:
      return DType::kF32;
    case v1::DTYPE_BF16:
      return DType::kBF16;
    case v1::DTYPE_F16:
      return DType::kF16;
    default:
      return std::nullopt;
  }
}

v1::Dtype WireDtype(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return v1::DTYPE_F32;
    case DType::kBF16:
      return v1::DTYPE_BF16;
    case DType::kF16:
      return v1::DTYPE_F16;
    case DType::kInt8:
      return v1::DTYPE_INT8;
    case DType::kFp8E4M3:
      return v1::DTYPE_F8_E4M3;
  }
  return v1::DTYPE_UNSPECIFIED;
}

absl::Status CheckLayer(const LayerPlan& plan, uint32_t layer) {
  if (int64_t{layer} < plan.num_layers()) {
    return absl::OkStatus();
  }
  return MakeError(
      Reason::kBadLayer,
      absl::StrCat("layer is ", layer, "; the model has layers 0 to ", plan.num_layers() - 1));
}

absl::StatusOr<int64_t> CheckHidden(const LayerPlan& plan, const v1::Tensor& hidden,
                                    int64_t bytes) {
  const std::optional<DType> dtype = HiddenDtype(hidden.dtype());
  if (!dtype.has_value()) {
    return MakeError(Reason::kBadTensor,
                     absl::StrCat("hidden.dtype is ", DtypeText(hidden.dtype()),
                                  "; expected DTYPE_F32, DTYPE_BF16 or DTYPE_F16"));
  }
  if (hidden.shape_size() != 2 || hidden.shape(0) < 1 || hidden.shape(1) != plan.d_model) {
    return MakeError(Reason::kBadTensor,
                     absl::StrCat("hidden.shape is ", ShapeText(hidden), "; expected [n, ",
                                  plan.d_model, "] with n >= 1"));
  }
  const int64_t rows = hidden.shape(0);
  int64_t expected = 0;
  // d_model * 4 cannot overflow: the model's configuration bounds d_model.
  if (__builtin_mul_overflow(rows, plan.d_model * DTypeSize(*dtype), &expected) ||
      bytes != expected) {
    return MakeError(Reason::kBadTensor,
                     absl::StrCat("hidden.data has ", bytes, " bytes; shape ", ShapeText(hidden),
                                  " of ", DTypeName(*dtype), " has ", rows, " * ", plan.d_model,
                                  " * ", DTypeSize(*dtype)));
  }
  return rows;
}

absl::StatusOr<DType> CheckOutputDtype(v1::Dtype output_dtype, const v1::Tensor& hidden) {
  const v1::Dtype wanted = output_dtype == v1::DTYPE_UNSPECIFIED ? hidden.dtype() : output_dtype;
  if (const std::optional<DType> dtype = HiddenDtype(wanted); dtype.has_value()) {
    return *dtype;
  }
  return MakeError(Reason::kBadTensor,
                   absl::StrCat("output_dtype is ", DtypeText(output_dtype),
                                "; expected DTYPE_F32, DTYPE_BF16, DTYPE_F16 or unspecified"));
}

absl::StatusOr<OutputRows> CheckOutputRows(v1::OutputRows rows) {
  switch (rows) {
    case v1::OUTPUT_ROWS_UNSPECIFIED:
    case v1::OUTPUT_ROWS_ALL:
      return OutputRows::kAll;
    case v1::OUTPUT_ROWS_LAST:
      return OutputRows::kLast;
    case v1::OUTPUT_ROWS_NONE:
      return OutputRows::kNone;
    default:
      return MakeError(Reason::kBadArgument,
                       absl::StrCat("output_rows is ", static_cast<int>(rows),
                                    "; expected OUTPUT_ROWS_ALL, _LAST or _NONE"));
  }
}

absl::Status CheckPositions(const LayerPlan& plan, std::optional<int> sequence, int64_t position,
                            int64_t rows, int64_t expected_length) {
  if (position < 0) {
    return MakeError(Reason::kBadArgument, absl::StrCat(Where(sequence), "position is ", position,
                                                        "; expected 0 or more"));
  }
  if (expected_length < 0) {
    return MakeError(Reason::kBadArgument, absl::StrCat(Where(sequence), "expected_length is ",
                                                        expected_length, "; expected 0 or more"));
  }
  if (rows > plan.max_seq_len || position > plan.max_seq_len - rows) {
    return MakeError(Reason::kPastMaxSeqLen,
                     absl::StrCat(Where(sequence), "position is ", position, " with ", rows,
                                  " rows; max_seq_len is ", plan.max_seq_len));
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const v1::DecodeRequest& request, int64_t rows) {
  if (request.sequences().empty()) {
    return MakeError(Reason::kBadBatch, "sequences is empty; expected at least one");
  }
  if (const std::string* twice = ComesTwice(request.sequences()); twice != nullptr) {
    return MakeError(Reason::kBadBatch, absl::StrCat("session_id ", Quoted(*twice),
                                                     " comes twice; expected once at most"));
  }
  int64_t total = 0;
  for (const v1::SequenceStep& sequence : request.sequences()) {
    total += SequenceRows(sequence);  // each is below 2^32 and there are fewer than 2^31
  }
  if (total != rows) {
    return MakeError(
        Reason::kBadBatch,
        absl::StrCat("hidden has ", rows, " rows; num_tokens of all sequences sum to ", total));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CheckDuration(const std::string& field,
                                      const google::protobuf::Duration& duration) {
  if (duration.seconds() < 0 || duration.nanos() < 0 || duration.nanos() > 999'999'999) {
    return MakeError(Reason::kBadArgument,
                     absl::StrCat(field, " is ", duration.seconds(), " s and ", duration.nanos(),
                                  " ns; expected 0 or more of both, and less than 10^9 ns"));
  }
  return std::min(duration.seconds(), kCentury) * 1'000'000'000 + duration.nanos();
}

}  // namespace attnd::server
