// A call's count, time, trace and metadata.
#include "server/call_span.h"

#include "grpcpp/server_context.h"
#include "server/status_map.h"

namespace attnd::server {

void AddServerMetadata(const ServiceContext& service, grpc::CallbackServerContext* context) {
  context->AddInitialMetadata("attnd-server", service.server_id);
}

void AddReasonMetadata(const absl::Status& status, grpc::CallbackServerContext* context) {
  if (!status.ok()) {
    context->AddTrailingMetadata("attnd-reason", ReasonName(WireReason(status)));
  }
}

CallSpan::CallSpan(ServiceContext& service, grpc::CallbackServerContext* context, Method method)
    : service_(service),
      live_(service),
      context_(context),
      method_(method),
      began_(service.clock.Now()),
      trace_(service.requests, *context) {
  service_.metrics.RpcBegan();
  AddServerMetadata(service_, context_);
}

void CallSpan::Ended(const absl::Status& status) {
  const int64_t total_ns = service_.clock.Now() - began_;
  service_.metrics.Rpc(method_, status, static_cast<double>(total_ns) * 1e-9);
  service_.metrics.RpcEnded();
  trace_.Ended(method_, status, total_ns);
  AddReasonMetadata(status, context_);
}

}  // namespace attnd::server
