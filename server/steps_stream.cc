// The reactor of a Steps stream.
#include "server/steps_stream.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "grpcpp/server_context.h"
#include "server/status_map.h"
#include "server/unary_call.h"
#include "server/validate.h"

namespace attnd::server {
namespace {

Method StepMethod(const v1::StepRequest& request) {
  return request.has_prefill()  ? Method::kStepsPrefill
         : request.has_decode() ? Method::kStepsDecode
                                : Method::kSteps;
}

}  // namespace

StepsStream::StepsStream(ServiceContext& service, grpc::CallbackServerContext* context)
    : service_(service),
      live_(service),
      context_(context),
      began_(service.clock.Now()),
      trace_(service.requests, *context) {
  AddServerMetadata(service_, context_);
  absl::StatusOr<Caller> caller = MakeCaller(service_, *context_);
  absl::Status status = caller.status();
  if (status.ok() && service_.admission.refusing()) {
    status = service_.admission.AdmitWork();
  }
  service_.streams.Add(this);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status.ok()) {
    End(status);
    return;
  }
  caller_ = *std::move(caller);
  StartSendInitialMetadata();  // a client may wait for attnd-server before its first step
  Advance();
}

void StepsStream::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closing_ = true;
  Advance();
}

void StepsStream::OnReadDone(bool ok) {
  v1::StepRequest request;
  TensorBytes hidden;
  absl::Status status;
  if (ok) {
    status = Guarded(
        [&] { return ParseRequest(&request_, service_.row_bytes.load(), &request, &hidden); });
    if (!status.ok()) {
      service_.metrics.Rpc(Method::kSteps, status, 0);
    }
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!ok || !status.ok() || finished_) {
      reading_ = false;
      read_closed_ = true;
      broken_ = status;
      Advance();
      return;
    }
    ++unanswered_;
  }
  Handle(request, hidden);
  const std::lock_guard<std::mutex> lock(mutex_);
  reading_ = false;
  Advance();
}

void StepsStream::Handle(const v1::StepRequest& request, const TensorBytes& hidden) {
  if (request.step_case() == v1::StepRequest::kCancelStepId) {
    CancelStep(request.cancel_step_id());
    const std::lock_guard<std::mutex> lock(mutex_);
    --unanswered_;  // a cancel has no answer of its own
    return;
  }
  service_.metrics.RpcBegan();
  auto open = std::make_shared<OpenStep>();
  open->step_id = request.step_id();
  open->method = StepMethod(request);
  open->began = service_.clock.Now();
  open->caller = caller_;
  open->trace = trace_;
  open->caller.cancelled = std::make_shared<std::atomic<bool>>(false);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    open->caller.cancelled->store(cancelled_);
    open_.emplace(open->step_id, open->caller.cancelled);
    ++steps_;
  }
  const absl::Status status = Guarded([&] { return Start(request, hidden, open); });
  if (!status.ok()) {
    Answer(open, status, "", {});
  }
}

absl::Status StepsStream::Start(const v1::StepRequest& request, const TensorBytes& hidden,
                                const std::shared_ptr<OpenStep>& open) {
  if (request.has_timeout()) {
    const absl::StatusOr<int64_t> timeout = CheckDuration("timeout", request.timeout());
    if (!timeout.ok()) {
      return timeout.status();
    }
    open->caller.deadline = std::min(open->caller.deadline, open->began + *timeout);
  }
  absl::StatusOr<BuiltStep> built;
  if (request.has_prefill()) {
    built = BuildPrefill(service_, open->caller, request.prefill(), hidden, AnswerForm::kParts);
  } else if (request.has_decode()) {
    built = BuildDecode(service_, open->caller, request.decode(), hidden);
  } else {
    built = MakeError(Reason::kBadArgument,
                      "step has no kind; expected prefill, decode or cancel_step_id");
  }
  if (!built.ok()) {
    return built.status();
  }
  open->output_dtype = built->output_dtype;
  open->charge = std::move(built->charge);
  built->step->done = [this, open](std::unique_ptr<Step> step) { Complete(open, step.get()); };
  return Submit(service_, std::move(built->step));
}

void StepsStream::CancelStep(uint64_t step_id) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [begin, end] = open_.equal_range(step_id);
    for (auto it = begin; it != end; ++it) {
      it->second->store(true);
    }
    if (begin == end) {
      return;  // answered already
    }
  }
  service_.engine->Poke();  // an open step was admitted, so there is an engine
}

void StepsStream::Complete(const std::shared_ptr<OpenStep>& open, Step* step) {
  std::vector<StreamAnswer> parts;
  const absl::Status status = Guarded([&]() -> absl::Status {
    RecordStep(service_, *step);
    open->trace.Ran(*step);
    absl::Status outcome = step->Outcome();
    if (outcome.ok()) {
      parts = Parts(*open, step);
    }
    return outcome;
  });
  Answer(open, status, StepShapeText(*step), std::move(parts));
}

std::vector<StreamAnswer> StepsStream::Parts(const OpenStep& open, Step* step) const {
  const AnswerRows rows = TakeRows(step, service_.engine->plan().d_model, open.output_dtype);
  if (step->kind == StepKind::kDecode) {
    return {EncodeStreamDecode(open.step_id, *step, rows)};
  }
  const int64_t row_bytes = rows.d_model * DTypeSize(rows.dtype);
  const int64_t room = service_.config.max_message_bytes - AnswerOverhead(0);
  const int64_t part_rows = std::max<int64_t>(1, room / row_bytes);
  std::vector<StreamAnswer> parts;
  int64_t begin = 0;
  do {
    const int64_t count = std::min(part_rows, rows.count - begin);
    parts.push_back(EncodePrefillPart(open.step_id, *step, rows, {begin, count}));
    begin += count;
  } while (begin < rows.count);
  return parts;
}

void StepsStream::Answer(const std::shared_ptr<OpenStep>& open, const absl::Status& status,
                         const std::string& shape, std::vector<StreamAnswer> parts) {
  const int64_t total_ns = service_.clock.Now() - open->began;
  service_.metrics.Rpc(open->method, status, static_cast<double>(total_ns) * 1e-9);
  service_.metrics.RpcEnded();
  open->trace.Ended(open->method, status, total_ns, open->step_id);
  if (!status.ok()) {
    if (WireReason(status) == Reason::kInternal) {
      service_.log.Error("internal_error", {{"method", MethodName(open->method)},
                                            {"request", shape},
                                            {"message", status.ToString()}});
    }
    parts.assign(1, EncodeFailure(open->step_id, status));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  Forget(*open);
  if (cancelled_) {
    --unanswered_;
  } else {
    for (StreamAnswer& part : parts) {
      outgoing_.push_back({std::move(part), open});
    }
  }
  Advance();
}

void StepsStream::Forget(const OpenStep& open) {
  const auto [begin, end] = open_.equal_range(open.step_id);
  for (auto it = begin; it != end; ++it) {
    if (it->second == open.caller.cancelled) {
      open_.erase(it);
      return;
    }
  }
}

void StepsStream::Advance() {
  if (finished_) {
    return;
  }
  if (!writing_ && !cancelled_ && !outgoing_.empty()) {
    writing_ = true;
    StartWrite(&outgoing_.front().answer.bytes);
  }
  const bool wants_more = !read_closed_ && !cancelled_ && !closing_;
  if (!reading_ && wants_more && unanswered_ < service_.config.max_stream_steps) {
    reading_ = true;
    StartRead(&request_);
  }
  if (!wants_more && unanswered_ == 0 && !writing_) {
    absl::Status status = broken_;
    if (!read_closed_ && closing_) {
      status = MakeRetryableError(Reason::kDraining, "the server is stopping", 1000);
    }
    End(status);
  }
}

void StepsStream::End(const absl::Status& status) {
  finished_ = true;
  trace_.StreamEnded(status, service_.clock.Now() - began_, steps_);
  AddReasonMetadata(status, context_);
  Finish(ToGrpcStatus(status));
}

void StepsStream::OnWriteDone(bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  writing_ = false;
  cancelled_ = cancelled_ || !ok;
  if (!outgoing_.front().answer.more) {
    --unanswered_;
  }
  outgoing_.pop_front();
  if (cancelled_) {
    for (const Outgoing& outgoing : outgoing_) {
      unanswered_ -= outgoing.answer.more ? 0 : 1;
    }
    outgoing_.clear();
  }
  Advance();
}

void StepsStream::OnCancel() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancelled_ = true;
    for (const auto& [id, flag] : open_) {
      flag->store(true);
    }
    // What is being written is dropped when OnWriteDone says so.
    while (outgoing_.size() > (writing_ ? 1U : 0U)) {
      unanswered_ -= outgoing_.back().answer.more ? 0 : 1;
      outgoing_.pop_back();
    }
    Advance();
  }
  // A reaction runs to its end before OnDone, so the members are still there.
  if (service_.admission.AdmitRead().ok()) {
    service_.engine->Poke();
  }
}

void StepsStream::OnDone() {
  service_.streams.Remove(this);
  {
    // Whoever called Finish() may still hold the lock.
    const std::lock_guard<std::mutex> lock(mutex_);
  }
  delete this;
}

}  // namespace attnd::server
