// The generated stubs with nothing in between.
#include "tests/integration/wire_client.h"

#include <gtest/gtest.h>

#include "grpcpp/impl/codegen/client_unary_call.h"

namespace attnd {
namespace {

template <typename Call>
Outcome Run(Seconds timeout, Call call) {
  grpc::ClientContext context;
  Prepare(&context, timeout);
  const grpc::Status status = call(&context);
  return OutcomeOf(status, context);
}

std::string Metadata(const std::multimap<grpc::string_ref, grpc::string_ref>& all,
                     const char* key) {
  const auto found = all.find(key);
  return found == all.end() ? "" : std::string(found->second.data(), found->second.size());
}

}  // namespace

std::string CodeText(int code) {
  constexpr const char* kNames[] = {"OK",
                                    "CANCELLED",
                                    "UNKNOWN",
                                    "INVALID_ARGUMENT",
                                    "DEADLINE_EXCEEDED",
                                    "NOT_FOUND",
                                    "ALREADY_EXISTS",
                                    "PERMISSION_DENIED",
                                    "RESOURCE_EXHAUSTED",
                                    "FAILED_PRECONDITION",
                                    "ABORTED",
                                    "OUT_OF_RANGE",
                                    "UNIMPLEMENTED",
                                    "INTERNAL",
                                    "UNAVAILABLE",
                                    "DATA_LOSS",
                                    "UNAUTHENTICATED"};
  return code >= 0 && code < 17 ? kNames[code] : std::to_string(code);
}

std::string Outcome::text() const { return CodeText(code) + (reason.empty() ? "" : " " + reason); }

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << outcome.text() << ": " << outcome.message;
}

std::string StatusText(const v1::Status& status) {
  return CodeText(status.code()) + (status.reason().empty() ? "" : " " + status.reason());
}

void Prepare(grpc::ClientContext* context, Seconds timeout) {
  // gRPC 1.51 sometimes fails the first connection to a live loopback server.
  context->set_wait_for_ready(true);
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::nanoseconds>(timeout));
}

Outcome OutcomeOf(const grpc::Status& status, const grpc::ClientContext& context) {
  return {status.error_code(), status.error_message(),
          Metadata(context.GetServerTrailingMetadata(), "attnd-reason"),
          Metadata(context.GetServerInitialMetadata(), "attnd-server"), status.error_details()};
}

Wire::Wire(const std::string& address, const std::map<std::string, int>& arguments) {
  grpc::ChannelArguments all;
  all.SetMaxReceiveMessageSize(512 << 20);
  all.SetMaxSendMessageSize(512 << 20);
  all.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // else equal channels share a connection
  for (const auto& [name, value] : arguments) {
    all.SetInt(name, value);
  }
  channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), all);
  attention_ = v1::AttentionService::NewStub(channel_);
  sessions_ = v1::SessionService::NewStub(channel_);
  model_ = v1::ModelService::NewStub(channel_);
  admin_ = v1::AdminService::NewStub(channel_);
}

Outcome Wire::Prefill(const v1::PrefillRequest& request, v1::PrefillResponse* response,
                      Seconds timeout) {
  return Run(timeout, [&](auto* c) { return attention_->Prefill(c, request, response); });
}

Outcome Wire::Decode(const v1::DecodeRequest& request, v1::DecodeResponse* response,
                     Seconds timeout) {
  return Run(timeout, [&](auto* c) { return attention_->Decode(c, request, response); });
}

Outcome Wire::Create(const v1::CreateSessionRequest& request, v1::Session* response) {
  return Run(Seconds(60), [&](auto* c) { return sessions_->CreateSession(c, request, response); });
}

Outcome Wire::Get(const std::string& session, v1::Session* response) {
  v1::GetSessionRequest request;
  request.set_session_id(session);
  return Run(Seconds(60), [&](auto* c) { return sessions_->GetSession(c, request, response); });
}

Outcome Wire::List(int32_t page_size, const std::string& token,
                   v1::ListSessionsResponse* response) {
  v1::ListSessionsRequest request;
  request.set_page_size(page_size);
  request.set_page_token(token);
  return Run(Seconds(60), [&](auto* c) { return sessions_->ListSessions(c, request, response); });
}

Outcome Wire::Rewind(const std::string& session, int64_t position, v1::Session* response) {
  v1::RewindSessionRequest request;
  request.set_session_id(session);
  request.set_position(position);
  return Run(Seconds(60), [&](auto* c) { return sessions_->RewindSession(c, request, response); });
}

Outcome Wire::Close(const std::string& session, v1::CloseSessionResponse* response) {
  v1::CloseSessionRequest request;
  request.set_session_id(session);
  return Run(Seconds(60), [&](auto* c) { return sessions_->CloseSession(c, request, response); });
}

Outcome Wire::CheckHealth(const std::string& service, Health* health, Seconds timeout) {
  // HealthCheckRequest {1: string service}, HealthCheckResponse {1: enum status}.
  std::string bytes;
  if (!service.empty()) {
    bytes = std::string("\x0a") + static_cast<char>(service.size()) + service;
  }
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check",
                                         grpc::internal::RpcMethod::NORMAL_RPC, channel_);
  const Outcome outcome = Run(timeout, [&](auto* c) {
    return grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
        channel_.get(), method, c, request, &response);
  });
  grpc::Slice answer;
  *health = Health::kUnknown;
  if (outcome.ok() && response.TrySingleSlice(&answer).ok() && answer.size() == 2) {
    *health = answer.begin()[1] == 1 ? Health::kServing : Health::kNotServing;
  }
  return outcome;
}

std::string Wire::Create(int64_t prefix, int64_t max_tokens) {
  v1::CreateSessionRequest request;
  request.set_prefix_length(prefix);
  request.set_max_tokens(max_tokens);
  v1::Session session;
  const Outcome outcome = Create(request, &session);
  EXPECT_TRUE(outcome.ok()) << outcome;
  return session.session_id();
}

std::vector<float> Wire::Prefill(const std::string& session, uint32_t layer, int64_t position,
                                 const v1::Tensor& hidden, bool rewind) {
  v1::PrefillRequest request = PrefillOf(session, layer, position, hidden);
  request.set_rewind(rewind);
  v1::PrefillResponse response;
  const Outcome outcome = Prefill(request, &response);
  EXPECT_TRUE(outcome.ok()) << outcome;
  return outcome.ok() ? Values(response.output()) : std::vector<float>();
}

std::vector<float> Wire::Decode(uint32_t layer, const std::vector<Part>& parts,
                                const v1::Tensor& hidden) {
  v1::DecodeResponse response;
  const Outcome outcome = Decode(DecodeOf(layer, parts, hidden), &response);
  EXPECT_TRUE(outcome.ok()) << outcome;
  for (const v1::SequenceResult& result : response.results()) {
    EXPECT_EQ(StatusText(result.status()), "OK") << result.status().message();
  }
  return outcome.ok() ? Values(response.output()) : std::vector<float>();
}

int64_t Wire::Length(const std::string& session, int layer) {
  v1::Session info;
  const Outcome outcome = Get(session, &info);
  EXPECT_TRUE(outcome.ok()) << outcome;
  return layer < info.layer_lengths_size() ? info.layer_lengths(layer) : -1;
}

int64_t Wire::Close(const std::string& session) {
  v1::CloseSessionResponse response;
  const Outcome outcome = Close(session, &response);
  EXPECT_TRUE(outcome.ok()) << outcome;
  return response.freed_bytes();
}

v1::Stats Wire::Stats() {
  v1::Stats stats;
  const Outcome outcome =
      Run(Seconds(60), [&](auto* c) { return admin_->GetStats(c, v1::GetStatsRequest(), &stats); });
  EXPECT_TRUE(outcome.ok()) << outcome;
  return stats;
}

v1::ModelInfo Wire::Model() {
  v1::ModelInfo info;
  const Outcome outcome =
      Run(Seconds(60), [&](auto* c) { return model_->GetModel(c, v1::GetModelRequest(), &info); });
  EXPECT_TRUE(outcome.ok()) << outcome;
  return info;
}

StepsCall::StepsCall(Wire& wire, Seconds timeout) {
  Prepare(&context_, timeout);
  stream_ = wire.attention().Steps(&context_);
}

StepsCall::~StepsCall() {
  if (!finished_) {
    Cancel();
    Finish();
  }
}

v1::StepResponse StepsCall::Next() {
  v1::StepResponse response;
  EXPECT_TRUE(Read(&response)) << "the stream has ended";
  return response;
}

Outcome StepsCall::Finish() {
  v1::StepResponse response;
  while (stream_->Read(&response)) {
  }
  finished_ = true;
  const grpc::Status status = stream_->Finish();
  return OutcomeOf(status, context_);
}

}  // namespace attnd
