// A stream that is refused as soon as it opens.
#pragma once

#include "absl/status/status.h"
#include "server/methods.h"
#include "server/service_context.h"
#include "server/status_map.h"
#include "server/unary_call.h"

namespace attnd::server {

// `Reactor` is the gRPC base class of the method. `refusal` is not OK; bad credentials come first.
template <typename Reactor>
class RefusedStream final : public Reactor {
 public:
  RefusedStream(ServiceContext& service, grpc::CallbackServerContext* context, Method method,
                const absl::Status& refusal)
      : service_(service) {
    service_.live_calls.fetch_add(1);
    AddServerMetadata(service_, context);
    const absl::StatusOr<Caller> caller = MakeCaller(service_, *context);
    const absl::Status status = caller.ok() ? refusal : caller.status();
    service_.metrics.Rpc(method, status, 0);
    AddReasonMetadata(status, context);
    this->Finish(ToGrpcStatus(status));
  }

 private:
  void OnDone() override {
    service_.live_calls.fetch_sub(1);
    delete this;
  }

  ServiceContext& service_;
};

}  // namespace attnd::server
