// AttentionService: Prefill, Decode and the stream of Steps, on the wire's bytes.
#include "server/attention_service.h"

#include <utility>

#include "server/build_step.h"
#include "server/fast_parse.h"
#include "server/raw_answer.h"
#include "server/steps_stream.h"
#include "server/unary_call.h"

namespace attnd::server {
namespace {

// gRPC would keep the request's bytes until the call ends. The object is its own, and not const.
grpc::ByteBuffer* Taken(const grpc::ByteBuffer* request) {
  return const_cast<grpc::ByteBuffer*>(request);
}

using Encode = grpc::ByteBuffer (*)(const Step& step, const AnswerRows& rows);

// Queues `built`; when it is done, `encode` makes the answer and the call ends.
absl::Status Run(ServiceContext& service, UnaryCall* call, absl::StatusOr<BuiltStep> built,
                 grpc::ByteBuffer* response, Encode encode) {
  if (!built.ok()) {
    return built.status();
  }
  const DType dtype = built->output_dtype;
  call->Keep(std::move(built->charge));
  built->step->done = [&service, call, dtype, response, encode](std::unique_ptr<Step> step) {
    const absl::Status status = Guarded([&]() -> absl::Status {
      RecordStep(service, *step);
      call->Ran(*step);
      absl::Status outcome = step->Outcome();
      if (outcome.ok()) {
        const AnswerRows rows = TakeRows(step.get(), service.engine->plan().d_model, dtype);
        encode(*step, rows).Swap(response);
      }
      return outcome;
    });
    call->Answer(status, status.ok() ? "" : StepShapeText(*step));
  };
  return Submit(service, std::move(built->step), /*may_run=*/true);
}

}  // namespace

grpc::ServerUnaryReactor* AttentionService::Prefill(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  auto* call = new UnaryCall(service_, context, Method::kPrefill);
  call->Start([&](const Caller& caller) {
    v1::PrefillRequest parsed;
    TensorBytes hidden;
    if (absl::Status status =
            ParseRequest(Taken(request), service_.row_bytes.load(), &parsed, &hidden);
        !status.ok()) {
      return status;
    }
    return Run(service_, call,
               BuildPrefill(service_, caller, parsed, hidden, AnswerForm::kOneMessage), response,
               &EncodePrefill);
  });
  return call;
}

grpc::ServerUnaryReactor* AttentionService::Decode(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request,
                                                   grpc::ByteBuffer* response) {
  auto* call = new UnaryCall(service_, context, Method::kDecode);
  call->Start([&](const Caller& caller) {
    v1::DecodeRequest parsed;
    TensorBytes hidden;
    if (absl::Status status =
            ParseRequest(Taken(request), service_.row_bytes.load(), &parsed, &hidden);
        !status.ok()) {
      return status;
    }
    return Run(service_, call, BuildDecode(service_, caller, parsed, hidden), response,
               &EncodeDecode);
  });
  return call;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttentionService::Steps(
    grpc::CallbackServerContext* context) {
  return new StepsStream(service_, context);
}

}  // namespace attnd::server
