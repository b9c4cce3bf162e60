// ModelService: what the server serves.
#pragma once

#include "attnd/v1/attnd.grpc.pb.h"
#include "server/service_context.h"

namespace attnd::server {

class ModelService final : public v1::ModelService::CallbackService {
 public:
  explicit ModelService(ServiceContext& service) : service_(service) {}

  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::ModelInfo* response) override;

 private:
  ServiceContext& service_;
};

}  // namespace attnd::server
