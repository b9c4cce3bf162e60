// One unary call with its deadline, metadata and tries, and the translation of gRPC's statuses.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "client/cpp/backoff.h"
#include "client/cpp/connection.h"

namespace attnd::client {

// Sets what every call of a client carries: the affinity key, and waiting for a connection.
void Prepare(const Connection& connection, grpc::ClientContext* context);
// Likewise, with another affinity key.
void PrepareWithKey(const Connection& connection, const std::string& key,
                    grpc::ClientContext* context);

// The status of a finished call, its reason and its retry advice.
absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context);

// The server that answered, by its own word (attnd-server); empty when none did.
std::string ServerOf(const grpc::ClientContext& context);

// The status that a response carries in itself.
absl::Status FromWire(const v1::Status& status);

// One try. `uncertain`: an earlier one failed so that it may have taken effect.
using Try = std::function<grpc::Status(grpc::ClientContext* context, bool uncertain)>;

struct CallOutcome {
  absl::Status status;
  // Some failed try may have taken effect: no answer, and no refusal by the server, came.
  bool uncertain = false;
  std::string server = {};  // that answered the last try (attnd-server); empty: none did
};

// Makes the call until it succeeds or its error is final (backoff.h).
CallOutcome CallWithRetry(Connection& connection, const Try& call);

// How a try of a call that began at `start` has just failed.
FailedTry FailedSince(const Connection& connection, const Error& error,
                      std::chrono::steady_clock::time_point start);

// A number to tell clients and sessions apart, from the system's entropy.
uint64_t Random64();
// 32 hexadecimal digits, 128 random bits.
std::string RandomId();

}  // namespace attnd::client
