// SessionService: the lifecycle of sessions.
#pragma once

#include "attnd/v1/attnd.grpc.pb.h"
#include "server/service_context.h"

namespace attnd::server {

class SessionService final : public v1::SessionService::CallbackService {
 public:
  explicit SessionService(ServiceContext& service) : service_(service) {}

  grpc::ServerUnaryReactor* CreateSession(grpc::CallbackServerContext* context,
                                          const v1::CreateSessionRequest* request,
                                          v1::Session* response) override;
  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const v1::GetSessionRequest* request,
                                       v1::Session* response) override;
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest* request,
                                         v1::ListSessionsResponse* response) override;
  grpc::ServerUnaryReactor* ForkSession(grpc::CallbackServerContext* context,
                                        const v1::ForkSessionRequest* request,
                                        v1::Session* response) override;
  grpc::ServerUnaryReactor* RewindSession(grpc::CallbackServerContext* context,
                                          const v1::RewindSessionRequest* request,
                                          v1::Session* response) override;
  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* context,
                                         const v1::CloseSessionRequest* request,
                                         v1::CloseSessionResponse* response) override;
  grpc::ServerWriteReactor<v1::ExportSessionResponse>* ExportSession(
      grpc::CallbackServerContext* context, const v1::ExportSessionRequest* request) override;
  grpc::ServerReadReactor<v1::ImportSessionRequest>* ImportSession(
      grpc::CallbackServerContext* context, v1::Session* response) override;

 private:
  ServiceContext& service_;
};

}  // namespace attnd::server
