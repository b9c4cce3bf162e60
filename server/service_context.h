// What all services share. Outlives the gRPC server.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "attnd/v1/attnd.pb.h"
#include "core/clock.h"
#include "core/engine.h"
#include "grpc/support/time.h"
#include "grpcpp/support/server_callback.h"
#include "server/admission.h"
#include "server/auth.h"
#include "server/byte_budget.h"
#include "server/config.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/request_log.h"
#include "server/stream_registry.h"

namespace attnd::server {

struct ServiceContext {
  const Config& config;
  const Clock& clock;
  const Auth& auth;
  const Log& log;
  RequestLog& requests;
  Metrics& metrics;
  Admission& admission;
  StreamRegistry& streams;
  ByteBudget& budget;
  std::string server_id;           // metadata attnd-server of every answer
  std::function<void()> on_drain;  // AdminService.Drain: health turns to not serving

  // Set before admission begins serving, and unchanged from then on.
  Engine* engine = nullptr;
  v1::ModelInfo model;

  // The fewest bytes of a row of the wire: two for each of d_model elements, when the model is
  // there.
  std::atomic<int64_t> row_bytes{2};

  // Reactors that gRPC has not let go of yet.
  std::atomic<int64_t> live_calls{0};
};

// Who made a call or opened a stream, and what bounds its steps.
struct Caller {
  std::string tenant;
  uint64_t connection = 0;  // of the peer's address: fairness is between connections
  MonotonicNs deadline = kNever;
  // Of the call or the step on a stream, which sets it before it builds a step.
  std::shared_ptr<std::atomic<bool>> cancelled;
};

// A call's deadline on our clock; kNever for one a year away or more.
MonotonicNs ToMonotonic(gpr_timespec deadline, const Clock& clock);

// BAD_CREDENTIALS when authentication is on and fails. `cancelled` is null.
absl::StatusOr<Caller> MakeCaller(const ServiceContext& service,
                                  const grpc::CallbackServerContext& context);

}  // namespace attnd::server
