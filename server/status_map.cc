// The only Status <-> gRPC table.
#include "server/status_map.h"

#include <optional>

#include "google/protobuf/any.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"

namespace attnd::server {
namespace {

using google::protobuf::internal::WireFormatLite;

void SetDuration(int64_t milliseconds, google::protobuf::Duration* duration) {
  duration->set_seconds(milliseconds / 1000);
  duration->set_nanos(static_cast<int32_t>(milliseconds % 1000) * 1'000'000);
}

// One field of bytes of a message whose class is not at hand.
void WriteBytes(int field, const std::string& value, google::protobuf::io::CodedOutputStream* out) {
  WireFormatLite::WriteBytes(field, value, out);
}

// A serialized google.rpc.Status {1: code, 2: message, 3: Any(RetryInfo {1: Duration})}: three
// fields by hand, because Debian's gRPC ships no generated classes for google/rpc.
std::string RetryDetails(const grpc::Status& status, int64_t retry_after_ms) {
  google::protobuf::Duration delay;
  SetDuration(retry_after_ms, &delay);
  google::protobuf::Any any;
  any.set_type_url("type.googleapis.com/google.rpc.RetryInfo");
  {
    google::protobuf::io::StringOutputStream stream(any.mutable_value());
    google::protobuf::io::CodedOutputStream out(&stream);
    WriteBytes(1, delay.SerializeAsString(), &out);
  }
  std::string details;
  google::protobuf::io::StringOutputStream stream(&details);
  google::protobuf::io::CodedOutputStream out(&stream);
  WireFormatLite::WriteInt32(1, static_cast<int>(status.error_code()), &out);
  WriteBytes(2, status.error_message(), &out);
  WriteBytes(3, any.SerializeAsString(), &out);
  out.Trim();
  return details;
}

// The codes of absl and gRPC have the same numbers; a status without a reason is a bug of ours.
absl::StatusCode WireCode(const absl::Status& status) {
  return status.ok() ? absl::StatusCode::kOk : ReasonCode(WireReason(status));
}

}  // namespace

const char* CodeName(absl::StatusCode code) {
  constexpr const char* kNames[] = {"OK",
                                    "CANCELLED",
                                    "UNKNOWN",
                                    "INVALID_ARGUMENT",
                                    "DEADLINE_EXCEEDED",
                                    "NOT_FOUND",
                                    "ALREADY_EXISTS",
                                    "PERMISSION_DENIED",
                                    "RESOURCE_EXHAUSTED",
                                    "FAILED_PRECONDITION",
                                    "ABORTED",
                                    "OUT_OF_RANGE",
                                    "UNIMPLEMENTED",
                                    "INTERNAL",
                                    "UNAVAILABLE",
                                    "DATA_LOSS",
                                    "UNAUTHENTICATED"};
  const int index = static_cast<int>(code);
  return index >= 0 && index < 17 ? kNames[index] : "UNKNOWN";
}

Reason WireReason(const absl::Status& status) {
  return ReasonOf(status).value_or(Reason::kInternal);
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) {
    return grpc::Status::OK;
  }
  const auto code = static_cast<grpc::StatusCode>(WireCode(status));
  const std::string message(status.message().data(), status.message().size());
  const std::optional<int64_t> retry = RetryAfterMs(status);
  if (!retry.has_value()) {
    return grpc::Status(code, message);
  }
  return grpc::Status(code, message, RetryDetails(grpc::Status(code, message), *retry));
}

void ToWireStatus(const absl::Status& status, v1::Status* wire) {
  wire->Clear();
  if (status.ok()) {
    return;
  }
  wire->set_code(static_cast<int32_t>(WireCode(status)));
  wire->set_message(status.message().data(), status.message().size());
  wire->set_reason(ReasonName(WireReason(status)));
  if (const std::optional<int64_t> retry = RetryAfterMs(status); retry.has_value()) {
    SetDuration(*retry, wire->mutable_retry_after());
  }
}

bool IsRejection(const absl::Status& status) {
  const absl::StatusCode code = WireCode(status);
  return code == absl::StatusCode::kResourceExhausted || code == absl::StatusCode::kUnavailable;
}

}  // namespace attnd::server
