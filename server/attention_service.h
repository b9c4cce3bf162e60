// AttentionService: Prefill, Decode and the stream of Steps, on the wire's bytes.
#pragma once

#include "attnd/v1/attnd.grpc.pb.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/service_context.h"

namespace attnd::server {

// Every method raw: gRPC hands over the slices of a message, and takes an answer as slices.
using RawAttentionService = v1::AttentionService::WithRawCallbackMethod_Prefill<
    v1::AttentionService::WithRawCallbackMethod_Decode<
        v1::AttentionService::WithRawCallbackMethod_Steps<v1::AttentionService::Service>>>;

class AttentionService final : public RawAttentionService {
 public:
  explicit AttentionService(ServiceContext& service) : service_(service) {}

  grpc::ServerUnaryReactor* Prefill(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Decode(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Steps(
      grpc::CallbackServerContext* context) override;

 private:
  ServiceContext& service_;
};

}  // namespace attnd::server
