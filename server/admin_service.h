// AdminService: for schedulers and operators.
#pragma once

#include "attnd/v1/attnd.grpc.pb.h"
#include "server/service_context.h"

namespace attnd::server {

class AdminService final : public v1::AdminService::CallbackService {
 public:
  explicit AdminService(ServiceContext& service) : service_(service) {}

  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context,
                                     const v1::GetStatsRequest* request,
                                     v1::Stats* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;

 private:
  ServiceContext& service_;
};

}  // namespace attnd::server
