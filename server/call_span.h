// A call from its arrival to its end: counted, timed, traced, and with the metadata of every
// answer.
#pragma once

#include "absl/status/status.h"
#include "core/step.h"
#include "grpcpp/support/server_callback.h"
#include "server/methods.h"
#include "server/request_log.h"
#include "server/service_context.h"

namespace attnd::server {

// Adds attnd-server to the initial metadata.
void AddServerMetadata(const ServiceContext& service, grpc::CallbackServerContext* context);
// Adds attnd-reason to the trailing metadata of a failed call.
void AddReasonMetadata(const absl::Status& status, grpc::CallbackServerContext* context);

// The server waits until none is left. A reactor's first member of those that use the service,
// for the first goes last.
class LiveCall {
 public:
  explicit LiveCall(ServiceContext& service) : service_(service) {
    service_.live_calls.fetch_add(1);
  }
  ~LiveCall() { service_.live_calls.fetch_sub(1); }
  LiveCall(const LiveCall&) = delete;
  LiveCall& operator=(const LiveCall&) = delete;

 private:
  ServiceContext& service_;
};

class CallSpan {
 public:
  CallSpan(ServiceContext& service, grpc::CallbackServerContext* context, Method method);

  // The engine has let go of the call's step.
  void Ran(const Step& step) { trace_.Ran(step); }
  // Exactly once, before Finish().
  void Ended(const absl::Status& status);

 private:
  ServiceContext& service_;
  const LiveCall live_;
  grpc::CallbackServerContext* const context_;
  const Method method_;
  const MonotonicNs began_;
  RequestTrace trace_;
};

}  // namespace attnd::server
