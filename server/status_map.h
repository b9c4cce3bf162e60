// The only place where an absl::Status becomes a gRPC status or the wire's in-band Status.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "attnd/v1/attnd.pb.h"
#include "core/error.h"
#include "grpcpp/support/status.h"

namespace attnd::server {

// "POSITION_MISMATCH"'s code as metrics write it: "FAILED_PRECONDITION".
const char* CodeName(absl::StatusCode code);

// The reason of a status that is not OK; INTERNAL for one that was not made as an error of the
// contract, which is a bug of ours.
Reason WireReason(const absl::Status& status);

// Code and message; retry advice goes into the details as google.rpc.RetryInfo.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Code, message, reason and retry advice. OK becomes an all-default message.
void ToWireStatus(const absl::Status& status, v1::Status* wire);

// True for the refusals that attnd_rejected_total counts: RESOURCE_EXHAUSTED and UNAVAILABLE.
bool IsRejection(const absl::Status& status);

}  // namespace attnd::server
