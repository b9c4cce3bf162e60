// A generated callback service with gRPC's defaults that sends a tensor back: what gRPC itself
// costs for the bytes of a Prefill or a Decode. `bench_echo_server [host:port]`; prints its
// address.
#include <cstdio>
#include <memory>
#include <string>

#include "attnd/v1/attnd.grpc.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace attnd {
namespace {

class Echo final : public v1::AttentionService::CallbackService {
  grpc::ServerUnaryReactor* Prefill(grpc::CallbackServerContext* context,
                                    const v1::PrefillRequest* request,
                                    v1::PrefillResponse* response) override {
    *response->mutable_output() = request->hidden();
    response->set_length(request->position() + request->hidden().shape(0));
    response->mutable_timing();
    return Done(context);
  }

  grpc::ServerUnaryReactor* Decode(grpc::CallbackServerContext* context,
                                   const v1::DecodeRequest* request,
                                   v1::DecodeResponse* response) override {
    for (const v1::SequenceStep& sequence : request->sequences()) {
      v1::SequenceResult* result = response->add_results();
      result->mutable_status();
      result->set_length(sequence.position() + 1);
    }
    *response->mutable_output() = request->hidden();
    response->mutable_timing();
    return Done(context);
  }

  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

int Run(const std::string& address) {
  Echo echo;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&echo);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "bench_echo_server: %s cannot be bound\n", address.c_str());
    return 2;
  }
  std::printf("%s:%d\n", address.substr(0, address.rfind(':')).c_str(), port);
  std::fflush(stdout);
  server->Wait();
  return 0;
}

}  // namespace
}  // namespace attnd

int main(int argc, char** argv) { return attnd::Run(argc > 1 ? argv[1] : "127.0.0.1:0"); }
