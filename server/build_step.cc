// From a request to a step of the engine.
#include "server/build_step.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "core/session_cut.h"
#include "server/validate.h"
#include "server/wire.h"

namespace attnd::server {
namespace {

absl::Status CheckQueue(const ServiceContext& service, const Caller& caller) {
  if (caller.deadline <= service.clock.Now()) {
    return MakeError(Reason::kStepTimeout, "the deadline had passed when the request arrived");
  }
  return service.engine->CheckRoom();  // before the rows are copied
}

absl::Status Admit(const ServiceContext& service, const Caller& caller) {
  if (absl::Status status = service.admission.AdmitWork(); !status.ok()) {
    return status;
  }
  return CheckQueue(service, caller);
}

std::unique_ptr<Step> NewStep(const Caller& caller, StepKind kind) {
  auto step = std::make_unique<Step>();
  step->kind = kind;
  step->connection = caller.connection;
  step->deadline = caller.deadline;
  step->cancelled = caller.cancelled;
  return step;
}

// What a step holds from its arrival until its answer has left: the message, its rows, the
// answer's, and the answer's message.
int64_t InFlightBytes(int64_t rows, int64_t answered, int64_t message_bytes, int64_t d_model,
                      DType output_dtype) {
  constexpr int64_t kFixed = 4096;  // a step's own structures, from above
  const int64_t answer_row = static_cast<int64_t>(sizeof(float)) + DTypeSize(output_dtype);
  return kFixed + message_bytes +
         d_model * (rows * static_cast<int64_t>(sizeof(float)) + answered * answer_row);
}

// The session of a sequence; its error is that of the sequence.
absl::Status Lookup(const ServiceContext& service, const Caller& caller, const std::string& id,
                    SequenceStep* sequence) {
  if (absl::Status status = CheckSessionId(id); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::shared_ptr<Session>> session =
      service.engine->sessions().Find(caller.tenant, id);
  if (!session.ok()) {
    return session.status();
  }
  sequence->session = *std::move(session);
  return absl::OkStatus();
}

SequenceStep ReadSequence(const ServiceContext& service, const Caller& caller, int index,
                          const v1::SequenceStep& wire) {
  SequenceStep sequence;
  sequence.position = wire.position();
  sequence.rows = SequenceRows(wire);
  sequence.rewind = wire.rewind();
  sequence.expected_length = wire.expected_length();
  sequence.status = Lookup(service, caller, wire.session_id(), &sequence);
  if (sequence.status.ok()) {
    sequence.status = CheckPositions(service.engine->plan(), index, sequence.position,
                                     sequence.rows, sequence.expected_length);
  }
  return sequence;
}

absl::StatusOr<BuiltStep> CheckPrefill(const ServiceContext& service, const Caller& caller,
                                       const v1::PrefillRequest& request, const TensorBytes& hidden,
                                       AnswerForm form) {
  if (absl::Status status = Admit(service, caller); !status.ok()) {
    return status;
  }
  const LayerPlan& plan = service.engine->plan();
  if (absl::Status status = CheckLayer(plan, request.layer()); !status.ok()) {
    return status;
  }
  const absl::StatusOr<int64_t> rows = CheckHidden(plan, request.hidden(), hidden.size);
  if (!rows.ok()) {
    return rows.status();
  }
  const absl::StatusOr<DType> dtype = CheckOutputDtype(request.output_dtype(), request.hidden());
  if (!dtype.ok()) {
    return dtype.status();
  }
  const absl::StatusOr<OutputRows> output_rows = CheckOutputRows(request.output_rows());
  if (!output_rows.ok()) {
    return output_rows.status();
  }
  BuiltStep built{NewStep(caller, StepKind::kPrefill), *dtype, {}};
  Step& step = *built.step;
  step.layer = request.layer();
  step.output_rows = *output_rows;
  SequenceStep& sequence = step.sequences.emplace_back();
  sequence.position = request.position();
  sequence.rows = *rows;
  sequence.rewind = request.rewind();
  sequence.expected_length = request.expected_length();
  if (absl::Status status = Lookup(service, caller, request.session_id(), &sequence);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckPositions(plan, std::nullopt, sequence.position, sequence.rows,
                                           sequence.expected_length);
      !status.ok()) {
    return status;
  }
  const int64_t answered = AnsweredRows({sequence.position, sequence.rows, step.output_rows},
                                        sequence.session->spec().prefix_length);
  if (form == AnswerForm::kOneMessage) {
    if (absl::Status status =
            CheckAnswerSize(answered, plan.d_model, *dtype, 0, service.config.max_message_bytes);
        !status.ok()) {
      return status;
    }
  }
  absl::StatusOr<ByteCharge> charge =
      service.budget.Charge(InFlightBytes(*rows, answered, hidden.size, plan.d_model, *dtype));
  if (!charge.ok()) {
    return charge.status();
  }
  built.charge = *std::move(charge);
  ReadHidden(hidden, *HiddenDtype(request.hidden().dtype()), plan.d_model, &step);
  if (!sequence.status.ok()) {
    return sequence.status;  // NOT_FINITE
  }
  return built;
}

absl::StatusOr<BuiltStep> CheckDecode(const ServiceContext& service, const Caller& caller,
                                      const v1::DecodeRequest& request, const TensorBytes& hidden) {
  if (absl::Status status = Admit(service, caller); !status.ok()) {
    return status;
  }
  const LayerPlan& plan = service.engine->plan();
  if (absl::Status status = CheckLayer(plan, request.layer()); !status.ok()) {
    return status;
  }
  const absl::StatusOr<int64_t> rows = CheckHidden(plan, request.hidden(), hidden.size);
  if (!rows.ok()) {
    return rows.status();
  }
  const absl::StatusOr<DType> dtype = CheckOutputDtype(request.output_dtype(), request.hidden());
  if (!dtype.ok()) {
    return dtype.status();
  }
  if (absl::Status status = CheckBatch(request, *rows); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckAnswerSize(*rows, plan.d_model, *dtype, request.sequences_size(),
                                            service.config.max_message_bytes);
      !status.ok()) {
    return status;
  }
  BuiltStep built{NewStep(caller, StepKind::kDecode), *dtype, {}};
  built.step->layer = request.layer();
  built.step->sequences.reserve(static_cast<size_t>(request.sequences_size()));
  for (int i = 0; i < request.sequences_size(); ++i) {
    built.step->sequences.push_back(ReadSequence(service, caller, i, request.sequences(i)));
  }
  absl::StatusOr<ByteCharge> charge =
      service.budget.Charge(InFlightBytes(*rows, *rows, hidden.size, plan.d_model, *dtype));
  if (!charge.ok()) {
    return charge.status();
  }
  built.charge = *std::move(charge);
  ReadHidden(hidden, *HiddenDtype(request.hidden().dtype()), plan.d_model, built.step.get());
  for (SequenceStep& sequence : built.step->sequences) {
    if (!sequence.status.ok() && sequence.session != nullptr) {
      sequence.length = sequence.session->Length(built.step->layer);  // the engine skips it
    }
  }
  return built;
}

}  // namespace

void Touch(const ServiceContext& service, const Caller& caller, const std::string& id) {
  if (service.admission.AdmitRead().ok()) {  // else there is no engine
    service.engine->sessions().Find(caller.tenant, id).IgnoreError();
  }
}

absl::StatusOr<BuiltStep> BuildPrefill(const ServiceContext& service, const Caller& caller,
                                       const v1::PrefillRequest& request, const TensorBytes& hidden,
                                       AnswerForm form) {
  absl::StatusOr<BuiltStep> built = CheckPrefill(service, caller, request, hidden, form);
  if (!built.ok()) {
    Touch(service, caller, request.session_id());
  }
  return built;
}

absl::StatusOr<BuiltStep> BuildDecode(const ServiceContext& service, const Caller& caller,
                                      const v1::DecodeRequest& request, const TensorBytes& hidden) {
  absl::StatusOr<BuiltStep> built = CheckDecode(service, caller, request, hidden);
  if (!built.ok()) {
    for (const v1::SequenceStep& sequence : request.sequences()) {
      Touch(service, caller, sequence.session_id());
    }
  }
  return built;
}

absl::StatusOr<std::unique_ptr<Step>> BuildRewind(const ServiceContext& service,
                                                  const Caller& caller,
                                                  const v1::RewindSessionRequest& request) {
  if (absl::Status status = service.admission.AdmitWork(); !status.ok()) {
    return status;
  }
  if (request.position() < 0) {
    Touch(service, caller, request.session_id());
    return MakeError(Reason::kBadArgument,
                     absl::StrCat("position is ", request.position(), "; expected 0 or more"));
  }
  return BuildOperation(service, caller, request.session_id(),
                        [&plan = service.engine->plan(),
                         position = request.position()](const std::shared_ptr<Session>& session) {
                          return RewindSession(plan, position, session.get());
                        });
}

absl::StatusOr<std::unique_ptr<Step>> BuildOperation(
    const ServiceContext& service, const Caller& caller, const std::string& session_id,
    std::function<absl::Status(const std::shared_ptr<Session>&)> operation) {
  std::unique_ptr<Step> step = NewStep(caller, StepKind::kOperation);
  step->operation = std::move(operation);
  SequenceStep& sequence = step->sequences.emplace_back();
  const absl::Status found = Lookup(service, caller, session_id, &sequence);
  if (absl::Status status = CheckQueue(service, caller); !status.ok()) {
    return status;
  }
  if (!found.ok()) {
    return found;
  }
  return step;
}

absl::Status Submit(const ServiceContext& service, std::unique_ptr<Step> step, bool may_run) {
  const bool any = std::any_of(step->sequences.begin(), step->sequences.end(),
                               [](const SequenceStep& s) { return s.session != nullptr; });
  if (any) {
    return may_run ? service.engine->EnqueueOrRun(&step) : service.engine->Enqueue(&step);
  }
  if (absl::Status status = step->Outcome(); !status.ok()) {
    return status;
  }
  step->output.assign(step->hidden.size(), 0.0F);
  const auto done = std::move(step->done);
  done(std::move(step));
  return absl::OkStatus();
}

void RecordStep(const ServiceContext& service, const Step& step) {
  if (step.kind == StepKind::kOperation) {
    return;
  }
  if (step.timing.batch_rows > 0) {  // it took part in a batch
    const LayerKind kind = service.engine->plan().layers[static_cast<size_t>(step.layer)];
    service.metrics.StepRan(step.kind, kind, step.timing);
  }
  if (step.kind == StepKind::kDecode && step.Outcome().ok()) {
    for (const SequenceStep& sequence : step.sequences) {
      service.metrics.Rejected(sequence.status);
    }
  }
}

std::string StepShapeText(const Step& step) {
  int64_t rows = 0;
  for (const SequenceStep& sequence : step.sequences) {
    rows += sequence.rows;
  }
  constexpr const char* kKinds[] = {"prefill", "decode", "operation"};
  return absl::StrCat(kKinds[static_cast<int>(step.kind)], " layer=", step.layer,
                      " sequences=", step.sequences.size(), " rows=", rows,
                      " position=", step.sequences.empty() ? 0 : step.sequences.front().position);
}

}  // namespace attnd::server
