#include "client/cpp/step_stream.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "client/cpp/connection.h"
#include "client/cpp/tensor.h"
#include "client/cpp/unary.h"

namespace attnd::client {
namespace {

v1::StepRequest ToRequest(const PrefillStep& step, int64_t d_model, DType dtype) {
  v1::StepRequest request;
  v1::PrefillRequest* prefill = request.mutable_prefill();
  prefill->set_session_id(step.session_id);
  prefill->set_layer(static_cast<uint32_t>(step.layer));
  prefill->set_position(step.position);
  prefill->set_rewind(step.rewind);
  prefill->set_expected_length(step.expected_length);
  prefill->set_output_rows(step.output_rows == OutputRows::kAll    ? v1::OUTPUT_ROWS_ALL
                           : step.output_rows == OutputRows::kLast ? v1::OUTPUT_ROWS_LAST
                                                                   : v1::OUTPUT_ROWS_NONE);
  EncodeRows(step.hidden, d_model, dtype, prefill->mutable_hidden());
  return request;
}

v1::StepRequest ToRequest(const DecodeStep& step, int64_t d_model, DType dtype) {
  v1::StepRequest request;
  v1::DecodeRequest* decode = request.mutable_decode();
  decode->set_layer(static_cast<uint32_t>(step.layer));
  for (const DecodeStep::Sequence& sequence : step.sequences) {
    v1::SequenceStep* wire = decode->add_sequences();
    wire->set_session_id(sequence.session_id);
    wire->set_position(sequence.position);
    wire->set_num_tokens(static_cast<uint32_t>(sequence.num_tokens));
    wire->set_rewind(sequence.rewind);
    wire->set_expected_length(sequence.expected_length);
  }
  EncodeRows(step.hidden, d_model, dtype, decode->mutable_hidden());
  return request;
}

Timing ToTiming(const v1::Timing& timing) {
  return {timing.queue_ns(), timing.compute_ns(), timing.batch_rows()};
}

// Adds one response to what its step has so far.
absl::Status Add(const v1::StepResponse& response, int64_t d_model, StepResult* result) {
  if (absl::Status status = FromWire(response.status()); !status.ok()) {
    return status;
  }
  if (response.has_prefill()) {
    if (result->output.empty()) {
      result->output_position = response.prefill().output_position();
    }
    result->timing = ToTiming(response.prefill().timing());
    return DecodeRows(response.prefill().output(), d_model, &result->output);
  }
  if (response.has_decode()) {
    for (const v1::SequenceResult& sequence : response.decode().results()) {
      result->sequences.push_back(FromWire(sequence.status()));
    }
    result->timing = ToTiming(response.decode().timing());
    return DecodeRows(response.decode().output(), d_model, &result->output);
  }
  return absl::InternalError("Steps: the server sent a response without a result");
}

}  // namespace

// One write and one read in flight; everything else waits in `outgoing_` or `pending_`. Reactions
// run on gRPC's threads and may overlap, so all state is under one lock, and `done` callbacks are
// called without it.
class StepStream::Reactor final
    : public grpc::ClientBidiReactor<v1::StepRequest, v1::StepResponse> {
 public:
  Reactor(std::shared_ptr<Connection> connection, int64_t d_model, const StreamOptions& options)
      : connection_(std::move(connection)), d_model_(d_model), options_(options) {
    Prepare(*connection_, &context_);
    context_.set_deadline(std::chrono::system_clock::time_point::max());
    connection_->attention->async()->Steps(&context_, this);
    AddHold();  // for the writes that come from outside reactions
    StartRead(&response_);
    StartCall();
  }

  uint64_t Submit(v1::StepRequest request, Done done);
  void Cancel(uint64_t step_id);
  void CloseWrites();
  absl::Status Wait();
  void Abort() { context_.TryCancel(); }

  const Connection& connection() const { return *connection_; }
  int64_t d_model() const { return d_model_; }

 private:
  struct Pending {
    StepResult result;
    Done done;
  };

  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  // Hands the next message to gRPC, or the end of writing. With the lock held.
  void Pump();

  const std::shared_ptr<Connection> connection_;
  const int64_t d_model_;
  const StreamOptions options_;
  grpc::ClientContext context_;
  v1::StepResponse response_;  // of the read in flight

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::StepRequest> outgoing_;  // the front is being written while writing_
  std::unordered_map<uint64_t, Pending> pending_;
  uint64_t next_id_ = 1;
  bool writing_ = false;
  bool writes_closed_ = false;  // by Finish
  bool writes_ended_ = false;   // told to gRPC
  bool broken_ = false;         // nothing more is read
  bool finished_ = false;       // OnDone has run, callbacks included
  absl::Status status_;
};

uint64_t StepStream::Reactor::Submit(v1::StepRequest request, Done done) {
  uint64_t id = 0;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] {
      return broken_ || writes_closed_ ||
             static_cast<int>(pending_.size()) < options_.max_in_flight;
    });
    id = next_id_++;
    if (!broken_ && !writes_closed_) {
      request.set_step_id(id);
      if (options_.step_timeout.count() > 0) {
        const int64_t ms = options_.step_timeout.count();
        request.mutable_timeout()->set_seconds(ms / 1000);
        request.mutable_timeout()->set_nanos(static_cast<int32_t>(ms % 1000 * 1'000'000));
      }
      pending_[id].done = std::move(done);
      outgoing_.push_back(std::move(request));
      Pump();
      return id;
    }
  }
  StepResult result;
  result.status = absl::UnavailableError("Steps: the stream has ended; open another");
  done(std::move(result));
  return id;
}

void StepStream::Reactor::Cancel(uint64_t step_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (broken_ || writes_closed_ || pending_.count(step_id) == 0) {
    return;
  }
  v1::StepRequest request;
  request.set_cancel_step_id(step_id);
  outgoing_.push_back(std::move(request));
  Pump();
}

void StepStream::Reactor::Pump() {
  if (writing_ || broken_ || writes_ended_) {
    return;
  }
  if (!outgoing_.empty()) {
    writing_ = true;
    StartWrite(&outgoing_.front());
  } else if (writes_closed_) {
    writes_ended_ = true;
    StartWritesDone();
  }
}

void StepStream::Reactor::OnWriteDone(bool ok) {
  std::lock_guard<std::mutex> lock(mutex_);
  writing_ = false;
  outgoing_.pop_front();
  if (ok) {
    Pump();
  }
}

void StepStream::Reactor::OnReadDone(bool ok) {
  if (!ok) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      broken_ = true;
      changed_.notify_all();
    }
    RemoveHold();
    return;
  }
  Pending complete;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = pending_.find(response_.step_id());
    if (it != pending_.end()) {
      StepResult& result = it->second.result;
      const absl::Status status = Add(response_, d_model_, &result);
      if (result.status.ok()) {
        result.status = status;
      }
      if (!response_.more()) {
        complete = std::move(it->second);
        pending_.erase(it);
        changed_.notify_all();
      }
    }
  }
  if (complete.done) {
    complete.done(std::move(complete.result));
  }
  StartRead(&response_);
}

void StepStream::Reactor::OnDone(const grpc::Status& status) {
  std::unordered_map<uint64_t, Pending> lost;
  absl::Status end = FromGrpc(status, context_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    lost.swap(pending_);
    status_ = end;
  }
  const absl::Status cause =
      end.ok() ? absl::UnavailableError("Steps: the stream ended before the step's answer") : end;
  for (auto& [id, step] : lost) {
    step.result.status = cause;
    step.done(std::move(step.result));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
  changed_.notify_all();
}

void StepStream::Reactor::CloseWrites() {
  std::lock_guard<std::mutex> lock(mutex_);
  writes_closed_ = true;
  changed_.notify_all();
  Pump();
}

absl::Status StepStream::Reactor::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return finished_; });
  return status_;
}

StepStream::StepStream(std::shared_ptr<Connection> connection, int64_t d_model,
                       const StreamOptions& options)
    : reactor_(std::make_unique<Reactor>(std::move(connection), d_model, options)) {}

absl::StatusOr<std::unique_ptr<StepStream>> StepStream::Open(Client& client,
                                                             const StreamOptions& options) {
  if (options.max_in_flight < 1) {
    return absl::InvalidArgumentError("max_in_flight: expected at least 1");
  }
  const absl::StatusOr<v1::ModelInfo> model = client.Model();
  if (!model.ok()) {
    return model.status();
  }
  return std::unique_ptr<StepStream>(
      new StepStream(client.connection(), model->d_model(), options));
}

StepStream::~StepStream() {
  reactor_->Abort();
  (void)reactor_->Wait();
}

uint64_t StepStream::Submit(const PrefillStep& step, Done done) {
  return reactor_->Submit(
      ToRequest(step, reactor_->d_model(), reactor_->connection().options.wire_dtype),
      std::move(done));
}

uint64_t StepStream::Submit(const DecodeStep& step, Done done) {
  return reactor_->Submit(
      ToRequest(step, reactor_->d_model(), reactor_->connection().options.wire_dtype),
      std::move(done));
}

std::future<StepResult> StepStream::Submit(const PrefillStep& step) {
  auto promise = std::make_shared<std::promise<StepResult>>();
  Submit(step, [promise](StepResult result) { promise->set_value(std::move(result)); });
  return promise->get_future();
}

std::future<StepResult> StepStream::Submit(const DecodeStep& step) {
  auto promise = std::make_shared<std::promise<StepResult>>();
  Submit(step, [promise](StepResult result) { promise->set_value(std::move(result)); });
  return promise->get_future();
}

void StepStream::Cancel(uint64_t step_id) { reactor_->Cancel(step_id); }

absl::Status StepStream::Finish() {
  reactor_->CloseWrites();
  return reactor_->Wait();
}

}  // namespace attnd::client
