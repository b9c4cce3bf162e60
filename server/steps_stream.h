// The reactor of a Steps stream.
//
// One read and one write are under way at most. The stream is read while fewer than
// --max_stream_steps of its steps are unanswered; a step counts until the last part of its answer
// has been written, so a client that does not read is not read either. It ends when nothing is
// owed any more and the client closed its side, the call was cancelled, or the server stops.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "attnd/v1/attnd.pb.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/build_step.h"
#include "server/call_span.h"
#include "server/fast_parse.h"
#include "server/methods.h"
#include "server/raw_answer.h"
#include "server/service_context.h"
#include "server/stream_registry.h"

namespace attnd::server {

class StepsStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                          public ClosableStream {
 public:
  StepsStream(ServiceContext& service, grpc::CallbackServerContext* context);

  void Close() override;

 private:
  using CancelFlag = std::shared_ptr<std::atomic<bool>>;

  // A step from its arrival to its answer.
  struct OpenStep {
    uint64_t step_id = 0;
    Method method = Method::kSteps;
    MonotonicNs began = 0;
    Caller caller;
    DType output_dtype = DType::kF32;
    ByteCharge charge;
    RequestTrace trace;
  };
  // A message of a step's answer. The step, and what it is charged, lasts until all have left.
  struct Outgoing {
    StreamAnswer answer;
    std::shared_ptr<const OpenStep> step;
  };

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Handle(const v1::StepRequest& request, const TensorBytes& hidden);
  absl::Status Start(const v1::StepRequest& request, const TensorBytes& hidden,
                     const std::shared_ptr<OpenStep>& open);
  void CancelStep(uint64_t step_id);
  // The engine's thread.
  void Complete(const std::shared_ptr<OpenStep>& open, Step* step);
  void Answer(const std::shared_ptr<OpenStep>& open, const absl::Status& status,
              const std::string& shape, std::vector<StreamAnswer> parts);
  // Takes the step's output.
  std::vector<StreamAnswer> Parts(const OpenStep& open, Step* step) const;
  void Forget(const OpenStep& open);
  // Starts what may be started: a write, a read, the end. Under the lock.
  void Advance();
  // Ends the call. Under the lock.
  void End(const absl::Status& status);

  ServiceContext& service_;
  const LiveCall live_;
  grpc::CallbackServerContext* const context_;
  const MonotonicNs began_;
  const RequestTrace trace_;
  Caller caller_;
  grpc::ByteBuffer request_;  // the read under way

  std::mutex mutex_;
  std::unordered_multimap<uint64_t, CancelFlag> open_;  // by step_id
  std::deque<Outgoing> outgoing_;
  int64_t unanswered_ = 0;
  int64_t steps_ = 0;     // that came
  bool reading_ = false;  // also while what was read is being handled
  bool writing_ = false;
  bool read_closed_ = false;
  bool cancelled_ = false;
  bool closing_ = false;
  bool finished_ = false;
  absl::Status broken_;  // what could not be read; nothing more is
};

}  // namespace attnd::server
