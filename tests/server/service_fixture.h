// The services over an engine that the test drives by hand, with or without a gRPC server.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attnd/v1/attnd.grpc.pb.h"
#include "grpcpp/channel.h"
#include "gtest/gtest.h"
#include "server/grpc_server.h"
#include "server/service_context.h"
#include "tests/support/test_engine.h"

namespace attnd::server {

class ServiceFixture : public ::testing::Test {
 protected:
  // A model of two layers, a local one with a window of 8 and a global one.
  ServiceFixture();
  ~ServiceFixture() override;

  // Serves on a free port; `config_` may be changed before.
  void StartGrpc();
  // Lets the engine run until it has nothing to do.
  void RunEngine() { engine_.RunAll(); }
  // The same over and over, until `done()` or ten seconds have passed; fails the test then.
  void RunEngineUntil(const std::function<bool()>& done);

  int64_t d_model() { return engine_.engine().plan().d_model; }
  v1::Tensor Hidden(uint64_t seed, int64_t rows);
  v1::PrefillRequest Prefill(const std::string& id, int64_t position, int64_t rows);
  Caller NewCaller();
  std::string Metrics() const { return metrics_.Expose(); }

  Config config_;
  TestEngine engine_;
  Auth auth_;
  Log log_{false};
  RequestLog requests_{log_, true};
  server::Metrics metrics_{"1.2.3"};
  Admission admission_;
  StreamRegistry streams_;
  ByteBudget budget_{int64_t{1} << 30};
  ServiceContext service_;
  std::unique_ptr<GrpcServer> grpc_;
  std::shared_ptr<grpc::Channel> channel_;
};

// "FAILED_PRECONDITION POSITION_MISMATCH", or "OK".
std::string Text(const absl::Status& status);

}  // namespace attnd::server
