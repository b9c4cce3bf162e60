// Unary calls over a real connection, their engine driven by hand: metadata, deadlines, cancels.
#include "server/unary_call.h"

#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>

#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "tests/server/service_fixture.h"

namespace attnd::server {
namespace {

class UnaryCallTest : public ServiceFixture {
 protected:
  struct Result {
    grpc::Status status;
    std::string reason;
    std::string server;
    v1::PrefillResponse response;
  };

  static std::string Value(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
                           const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
  }

  // Calls from another thread while the engine is driven here, or is not.
  std::future<Result> Call(const v1::PrefillRequest& request,
                           std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    return std::async(std::launch::async, [this, request, timeout] {
      Result result;
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + timeout);
      const auto stub = v1::AttentionService::NewStub(channel_);
      result.status = stub->Prefill(&context, request, &result.response);
      result.reason = Value(context.GetServerTrailingMetadata(), "attnd-reason");
      result.server = Value(context.GetServerInitialMetadata(), "attnd-server");
      return result;
    });
  }
  Result Finish(std::future<Result> call) {
    RunEngineUntil(
        [&] { return call.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
    return call.get();
  }
};

TEST_F(UnaryCallTest, AnAnswerCarriesTheServersId) {
  StartGrpc();
  const std::string id = engine_.Create();
  const Result result = Finish(Call(Prefill(id, 0, 2)));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.server, "replica-7");
  EXPECT_EQ(result.reason, "");
  EXPECT_EQ(result.response.output().shape(0), 2);
}

TEST_F(UnaryCallTest, AnErrorCarriesItsReasonAndTheServersId) {
  StartGrpc();
  const std::string id = engine_.Create();
  const Result late = Finish(Call(Prefill(id, 3, 1)));  // fails in the engine
  EXPECT_EQ(late.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(late.reason, "POSITION_MISMATCH");
  EXPECT_EQ(late.server, "replica-7");
  const Result early = Call(Prefill("nobody", 0, 1)).get();  // fails before it
  EXPECT_EQ(early.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(early.reason, "SESSION_UNKNOWN");
  EXPECT_EQ(early.server, "replica-7");
}

TEST_F(UnaryCallTest, BytesThatDoNotParseAreABadArgument) {
  StartGrpc();
  v1::PrefillRequest request = Prefill(engine_.Create(), 0, 1);
  request.set_session_id("\xff");  // not UTF-8
  const Result result = Call(request).get();
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(result.status.error_message().find("attnd.v1.PrefillRequest"), std::string::npos);
  EXPECT_EQ(result.reason, "BAD_ARGUMENT");
  EXPECT_EQ(result.server, "replica-7");
}

TEST_F(UnaryCallTest, AnExpiredCallIsNotComputed) {
  StartGrpc();
  const std::string id = engine_.Create();
  const Result result = Call(Prefill(id, 0, 1), std::chrono::milliseconds(100)).get();
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until the server knows, too
  RunEngineUntil([&] { return service_.live_calls.load() == 0; });
  EXPECT_EQ(engine_.Find(id)->Length(0), 0);
  EXPECT_TRUE(engine_.batches().empty());
  EXPECT_TRUE(Finish(Call(Prefill(id, 0, 1))).status.ok());
}

TEST_F(UnaryCallTest, BeforeTheModelIsLoadedNothingIsTouched) {
  Admission starting;
  ServiceContext service{.config = config_,
                         .clock = engine_.clock(),
                         .auth = auth_,
                         .log = log_,
                         .requests = requests_,
                         .metrics = metrics_,
                         .admission = starting,
                         .streams = streams_,
                         .budget = budget_,
                         .server_id = "replica-7",
                         .on_drain = [] {},
                         .engine = nullptr,
                         .model = {}};
  auto server = GrpcServer::Start(service, grpc::InsecureServerCredentials());
  ASSERT_TRUE(server.ok()) << server.status();
  channel_ = grpc::CreateChannel((*server)->addresses(), grpc::InsecureChannelCredentials());
  const Result result = Call(Prefill("a", 0, 1)).get();
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(result.reason, "NOT_READY");
  grpc::ClientContext context;
  v1::Session session;
  EXPECT_EQ(v1::SessionService::NewStub(channel_)
                ->CreateSession(&context, v1::CreateSessionRequest(), &session)
                .error_code(),
            grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext expired;
  expired.set_deadline(std::chrono::system_clock::now());
  v1::ModelInfo info;
  EXPECT_FALSE(
      v1::ModelService::NewStub(channel_)->GetModel(&expired, v1::GetModelRequest(), &info).ok());
  channel_.reset();
  (*server)->Shutdown(0);
}

TEST(GuardedTest, WhatIsThrownBecomesAnError) {
  const absl::Status status =
      Guarded([]() -> absl::Status { throw std::runtime_error("out of luck"); });
  EXPECT_EQ(Text(status), "INTERNAL INTERNAL");
  EXPECT_NE(status.message().find("out of luck"), std::string::npos);
  EXPECT_TRUE(Guarded([] { return absl::OkStatus(); }).ok());
}

}  // namespace
}  // namespace attnd::server
