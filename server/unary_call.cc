// A unary call's reactor.
#include "server/unary_call.h"

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

UnaryCall::UnaryCall(ServiceContext& service, grpc::CallbackServerContext* context, Method method)
    : service_(service),
      context_(context),
      method_(method),
      began_(service.clock.Now()),
      trace_(service.requests, *context) {
  service_.live_calls.fetch_add(1);
  service_.metrics.RpcBegan();
  AddServerMetadata(service_, context_);
}

void UnaryCall::Answer(const absl::Status& status, const std::string& shape) {
  const int64_t total_ns = service_.clock.Now() - began_;
  service_.metrics.Rpc(method_, status, static_cast<double>(total_ns) * 1e-9);
  service_.metrics.RpcEnded();
  trace_.Ended(method_, status, total_ns);
  if (!status.ok() && WireReason(status) == Reason::kInternal) {
    service_.log.Error(
        "internal_error",
        {{"method", MethodName(method_)}, {"request", shape}, {"message", status.ToString()}});
  }
  AddReasonMetadata(status, context_);
  Finish(ToGrpcStatus(status));
}

void UnaryCall::OnCancel() {
  cancelled_->store(true);
  // Before serving there is no engine, and no step that could wait for it.
  if (service_.admission.AdmitRead().ok()) {
    service_.engine->Poke();
  }
}

void UnaryCall::OnDone() {
  service_.live_calls.fetch_sub(1);
  delete this;
}

}  // namespace attnd::server
