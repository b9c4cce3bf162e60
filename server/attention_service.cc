// AttentionService: Prefill, Decode and the stream of Steps.
#include "server/attention_service.h"

#include <utility>

#include "server/build_step.h"
#include "server/steps_stream.h"
#include "server/unary_call.h"
#include "server/wire.h"

namespace attnd::server {
namespace {

// Queues `built`; when it is done, `write(step, dtype)` fills the answer and the call ends.
template <typename Write>
absl::Status Run(ServiceContext& service, UnaryCall* call, absl::StatusOr<BuiltStep> built,
                 Write write) {
  if (!built.ok()) {
    return built.status();
  }
  const DType dtype = built->output_dtype;
  built->step->done = [&service, call, dtype, write](std::unique_ptr<Step> step) {
    absl::Status status = Guarded([&]() -> absl::Status {
      RecordStep(service, *step);
      absl::Status outcome = step->Outcome();
      if (outcome.ok()) {
        write(*step, dtype);
      }
      return outcome;
    });
    call->Answer(status, StepShapeText(*step));
  };
  return Submit(service, std::move(built->step));
}

}  // namespace

grpc::ServerUnaryReactor* AttentionService::Prefill(grpc::CallbackServerContext* context,
                                                    const v1::PrefillRequest* request,
                                                    v1::PrefillResponse* response) {
  auto* call = new UnaryCall(service_, context, Method::kPrefill);
  call->Start([&](const Caller& caller) {
    return Run(service_, call, BuildPrefill(service_, caller, *request, AnswerForm::kOneMessage),
               [this, response](const Step& step, DType dtype) {
                 WritePrefill(step, service_.engine->plan().d_model, dtype, response);
               });
  });
  return call;
}

grpc::ServerUnaryReactor* AttentionService::Decode(grpc::CallbackServerContext* context,
                                                   const v1::DecodeRequest* request,
                                                   v1::DecodeResponse* response) {
  auto* call = new UnaryCall(service_, context, Method::kDecode);
  call->Start([&](const Caller& caller) {
    return Run(service_, call, BuildDecode(service_, caller, *request),
               [this, response](const Step& step, DType dtype) {
                 WriteDecode(step, service_.engine->plan().d_model, dtype, response);
               });
  });
  return call;
}

grpc::ServerBidiReactor<v1::StepRequest, v1::StepResponse>* AttentionService::Steps(
    grpc::CallbackServerContext* context) {
  return new StepsStream(service_, context);
}

}  // namespace attnd::server
