// The generated stubs with nothing in between: a test can send what no client library would.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "attnd/v1/attnd.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "tests/integration/rows.h"
#include "tests/integration/server_process.h"

namespace attnd {

// How a call ended, with what attnd adds to it.
struct Outcome {
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  std::string message;
  std::string reason;     // trailing metadata attnd-reason
  std::string server_id;  // initial metadata attnd-server
  std::string details;    // a serialized google.rpc.Status

  bool ok() const { return code == grpc::StatusCode::OK; }
  // "NOT_FOUND SESSION_UNKNOWN", or "OK": for comparisons.
  std::string text() const;
};
// With the message, for failed assertions.
std::ostream& operator<<(std::ostream& out, const Outcome& outcome);

std::string CodeText(int code);

// A context that waits for a connection and at most `timeout` for the answer.
void Prepare(grpc::ClientContext* context, Seconds timeout = Seconds(60));
Outcome OutcomeOf(const grpc::Status& status, const grpc::ClientContext& context);

// One connection of its own.
class Wire {
 public:
  // `arguments`: channel arguments beside the defaults.
  explicit Wire(const std::string& address, const std::map<std::string, int>& arguments = {});

  Outcome Prefill(const v1::PrefillRequest& request, v1::PrefillResponse* response,
                  Seconds timeout = Seconds(60));
  Outcome Decode(const v1::DecodeRequest& request, v1::DecodeResponse* response,
                 Seconds timeout = Seconds(60));
  Outcome Create(const v1::CreateSessionRequest& request, v1::Session* response);
  Outcome Get(const std::string& session, v1::Session* response);
  Outcome List(int32_t page_size, const std::string& token, v1::ListSessionsResponse* response);
  Outcome Rewind(const std::string& session, int64_t position, v1::Session* response);
  Outcome Close(const std::string& session, v1::CloseSessionResponse* response);
  // grpc.health.v1.Health/Check by hand: Debian ships no generated class.
  enum class Health { kUnknown, kServing, kNotServing };
  Outcome CheckHealth(const std::string& service, Health* health, Seconds timeout = Seconds(60));

  // These fail the test when the call does.
  std::string Create(int64_t prefix = 0, int64_t max_tokens = 0);
  std::vector<float> Prefill(const std::string& session, uint32_t layer, int64_t position,
                             const v1::Tensor& hidden, bool rewind = false);
  std::vector<float> Decode(uint32_t layer, const std::vector<Part>& parts,
                            const v1::Tensor& hidden);
  int64_t Length(const std::string& session, int layer);
  int64_t Close(const std::string& session);  // the bytes freed
  v1::Stats Stats();
  v1::ModelInfo Model();

  v1::AttentionService::Stub& attention() { return *attention_; }
  v1::SessionService::Stub& sessions() { return *sessions_; }
  v1::AdminService::Stub& admin() { return *admin_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AttentionService::Stub> attention_;
  std::unique_ptr<v1::SessionService::Stub> sessions_;
  std::unique_ptr<v1::ModelService::Stub> model_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

// A Steps stream.
class StepsCall {
 public:
  explicit StepsCall(Wire& wire, Seconds timeout = Seconds(60));
  ~StepsCall();
  StepsCall(const StepsCall&) = delete;
  StepsCall& operator=(const StepsCall&) = delete;

  bool Write(const v1::StepRequest& request) { return stream_->Write(request); }
  bool Read(v1::StepResponse* response) { return stream_->Read(response); }
  // The next answer; fails the test when the stream has ended.
  v1::StepResponse Next();
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  Outcome Finish();

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepRequest, v1::StepResponse>> stream_;
  bool finished_ = false;
};

// "OK", or the code and reason of an in-band status.
std::string StatusText(const v1::Status& status);

}  // namespace attnd
