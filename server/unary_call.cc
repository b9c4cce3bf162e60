// A unary call's reactor.
#include "server/unary_call.h"

#include "grpcpp/server_context.h"
#include "server/status_map.h"

namespace attnd::server {

UnaryCall::UnaryCall(ServiceContext& service, grpc::CallbackServerContext* context, Method method)
    : service_(service), context_(context), method_(method), span_(service, context, method) {}

void UnaryCall::Answer(const absl::Status& status, const std::string& shape) {
  span_.Ended(status);
  if (!status.ok() && WireReason(status) == Reason::kInternal) {
    service_.log.Error(
        "internal_error",
        {{"method", MethodName(method_)}, {"request", shape}, {"message", status.ToString()}});
  }
  Finish(ToGrpcStatus(status));
}

void UnaryCall::OnCancel() {
  cancelled_->store(true);
  // Before serving there is no engine, and no step that could wait for it.
  if (service_.admission.AdmitRead().ok()) {
    service_.engine->Poke();
  }
}

void UnaryCall::OnDone() { delete this; }

}  // namespace attnd::server
