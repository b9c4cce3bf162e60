// The gRPC server: its services, its limits, its addresses, its health.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/security/server_credentials.h"
#include "server/service_context.h"

namespace attnd::server {

class GrpcServer {
 public:
  // Binds every --listen and serves, healthy for nobody yet. The error is one line with the
  // address. `service` outlives the server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      ServiceContext& service, const std::shared_ptr<grpc::ServerCredentials>& credentials);
  ~GrpcServer();

  // As given, with true ports, separated by commas.
  const std::string& addresses() const { return addresses_; }

  // grpc.health.v1, overall and of every service of ours.
  void SetHealthy(bool healthy);

  // Ends what is still open after `grace_ns`; returns when every reactor is gone. Once.
  void Shutdown(int64_t grace_ns);

 private:
  struct Impl;
  GrpcServer();

  std::unique_ptr<Impl> impl_;
  std::string addresses_;
};

}  // namespace attnd::server
