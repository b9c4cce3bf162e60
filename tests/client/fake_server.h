// A server that keeps the wire contract's positions and computes nothing: the answer of a row is
// the row times two. It fails on command, before or after a step has taken effect.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "attnd/v1/attnd.grpc.pb.h"
#include "client/cpp/client.h"

namespace attnd::client {

// How the next call that changes something ends.
struct Failure {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string reason;     // empty: as if gRPC had made the status
  bool after = false;     // the call takes effect first: its answer is lost
  int64_t retry_ms = -1;  // >= 0: sent as google.rpc.RetryInfo
  bool switches = false;  // then calls go to the other replica
};

// How sessions are exported and imported.
struct FakeExport {
  int64_t data_bytes = 1000;
  size_t chunk_bytes = 300;
  std::string affinity_key;
  bool damage = false;              // one bit of the data is another
  size_t cut_after = 1 << 20;       // parts, after which the stream ends
  bool silent = false;              // then nothing comes until the client cancels
  grpc::Status end;                 // how the stream ends
  bool import_answer_lost = false;  // an import takes effect, and is not answered
};

class FakeServer : public v1::AttentionService::Service,
                   public v1::SessionService::Service,
                   public v1::ModelService::Service,
                   public v1::AdminService::Service {
 public:
  static constexpr int kWidth = 2;
  static constexpr int kLayers = 3;

  explicit FakeServer(int64_t max_message_bytes = 1 << 20);
  ~FakeServer() override;

  // A client whose pauses between tries are short.
  std::unique_ptr<Client> Connect(ClientOptions options = {}) const;
  const std::string& target() const { return target_; }

  // As a restart does.
  void LoseSessions();
  // Calls go to a second replica with sessions of its own, or back to the first.
  void SwitchReplica();
  // What grpc.health.v1 says.
  void SetServing(bool serving);
  void FailNext(const Failure& failure);
  // Takes back what FailNext() has ordered.
  void StopFailing();
  int64_t Length(const std::string& session, int layer);
  // The requests so far, in order.
  std::vector<v1::PrefillRequest> prefills();
  std::vector<v1::DecodeRequest> decodes();
  int creates();
  // Affinity keys that calls carried, in order.
  std::vector<std::string> keys();
  // Sets the rows of one response on Steps; a longer answer is sent with `more`.
  void set_stream_rows(int rows) { stream_rows_ = rows; }
  // Prefill steps of this layer are not answered on Steps until they are cancelled.
  static constexpr int kSilentLayer = 2;
  // The largest number of silent steps that a stream had at a time.
  int most_in_flight();
  void SetExport(const FakeExport& how);
  // Whether steps of the session are refused with SESSION_MOVING.
  bool Moving(const std::string& session);
  void SetMoving(const std::string& session, bool moving);
  // Exports begun, and imports that ended before their digest.
  int exports();
  int cut_imports();
  // The replica that answers from now on; empty: it does not say.
  void set_server_id(const std::string& id);
  std::string server_id();
  // Calls of Drain.
  int drains();
  // ListSessions yields the same page for ever, or an empty one.
  enum class Pages { kEnd, kRepeat, kEmpty };
  void set_pages(Pages pages) { pages_ = pages; }
  // Ends every stream with this status at its next message.
  void BreakStreams();

  grpc::Status Prefill(grpc::ServerContext* context, const v1::PrefillRequest* request,
                       v1::PrefillResponse* response) override;
  grpc::Status Decode(grpc::ServerContext* context, const v1::DecodeRequest* request,
                      v1::DecodeResponse* response) override;
  grpc::Status Steps(grpc::ServerContext* context,
                     grpc::ServerReaderWriter<v1::StepResponse, v1::StepRequest>* stream) override;
  grpc::Status CreateSession(grpc::ServerContext* context, const v1::CreateSessionRequest* request,
                             v1::Session* response) override;
  grpc::Status GetSession(grpc::ServerContext* context, const v1::GetSessionRequest* request,
                          v1::Session* response) override;
  grpc::Status ListSessions(grpc::ServerContext* context, const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse* response) override;
  grpc::Status RewindSession(grpc::ServerContext* context, const v1::RewindSessionRequest* request,
                             v1::Session* response) override;
  grpc::Status CloseSession(grpc::ServerContext* context, const v1::CloseSessionRequest* request,
                            v1::CloseSessionResponse* response) override;
  grpc::Status ForkSession(grpc::ServerContext* context, const v1::ForkSessionRequest* request,
                           v1::Session* response) override;
  grpc::Status ExportSession(grpc::ServerContext* context, const v1::ExportSessionRequest* request,
                             grpc::ServerWriter<v1::ExportSessionResponse>* writer) override;
  grpc::Status ImportSession(grpc::ServerContext* context,
                             grpc::ServerReader<v1::ImportSessionRequest>* reader,
                             v1::Session* response) override;
  grpc::Status GetModel(grpc::ServerContext* context, const v1::GetModelRequest* request,
                        v1::ModelInfo* response) override;
  grpc::Status GetStats(grpc::ServerContext* context, const v1::GetStatsRequest* request,
                        v1::Stats* response) override;
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override;

 private:
  struct StepFields {
    std::string session;
    uint32_t layer = 0;
    int64_t position = 0;
    int64_t rows = 0;
    bool rewind = false;
    int64_t expected_length = 0;
  };

  // With the lock held.
  void Tell(grpc::ServerContext* context);  // which server answers
  Failure TakeFailure(grpc::ServerContext* context);
  grpc::Status Fail(grpc::ServerContext* context, const Failure& failure);
  // The reason why the step is refused, or empty when it was appended.
  std::string Append(const StepFields& step);
  // The parts of a session, with the lock held.
  std::vector<v1::SessionChunk> ChunksOf(const std::string& id);
  void Fill(const std::string& id, v1::Session* session);
  bool Answer(const v1::StepRequest& request,
              grpc::ServerReaderWriter<v1::StepResponse, v1::StepRequest>* stream);

  const int64_t max_message_bytes_;
  std::string target_;
  std::mutex mutex_;
  std::deque<Failure> failures_;
  std::map<std::string, std::vector<int64_t>> sessions_;
  std::map<std::string, std::vector<int64_t>> elsewhere_;  // of the replica that is not asked
  std::set<std::string> moving_;
  FakeExport export_;
  int exports_ = 0;
  int cut_imports_ = 0;
  int drains_ = 0;
  std::atomic<Pages> pages_ = Pages::kEnd;
  std::string server_id_;
  std::vector<v1::PrefillRequest> prefills_;
  std::vector<v1::DecodeRequest> decodes_;
  std::vector<std::string> keys_;
  int creates_ = 0;
  int stream_rows_ = 1 << 20;
  int most_in_flight_ = 0;
  bool break_streams_ = false;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace attnd::client
