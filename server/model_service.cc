// ModelService: what the server serves.
#include "server/model_service.h"

#include "server/unary_call.h"

namespace attnd::server {

grpc::ServerUnaryReactor* ModelService::GetModel(grpc::CallbackServerContext* context,
                                                 const v1::GetModelRequest* /*request*/,
                                                 v1::ModelInfo* response) {
  return AnswerNow(service_, context, Method::kGetModel, [&](const Caller&) -> absl::Status {
    absl::Status status = service_.admission.AdmitRead();
    if (status.ok()) {
      *response = service_.model;
    }
    return status;
  });
}

}  // namespace attnd::server
