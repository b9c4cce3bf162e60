// AttentionService: Prefill, Decode and the stream of Steps.
#pragma once

#include "attnd/v1/attnd.grpc.pb.h"
#include "server/service_context.h"

namespace attnd::server {

class AttentionService final : public v1::AttentionService::CallbackService {
 public:
  explicit AttentionService(ServiceContext& service) : service_(service) {}

  grpc::ServerUnaryReactor* Prefill(grpc::CallbackServerContext* context,
                                    const v1::PrefillRequest* request,
                                    v1::PrefillResponse* response) override;
  grpc::ServerUnaryReactor* Decode(grpc::CallbackServerContext* context,
                                   const v1::DecodeRequest* request,
                                   v1::DecodeResponse* response) override;
  grpc::ServerBidiReactor<v1::StepRequest, v1::StepResponse>* Steps(
      grpc::CallbackServerContext* context) override;

 private:
  ServiceContext& service_;
};

}  // namespace attnd::server
