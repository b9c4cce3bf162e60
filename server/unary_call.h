// A unary call's reactor: measures, adds the metadata of every answer, finishes exactly once.
//
// gRPC 1.51 wants Finish() also after a cancel (its status is then ignored), and lets nothing
// thrown pass: an exception out of a handler reaches the client as UNIMPLEMENTED without text.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/support/server_callback.h"
#include "server/call_span.h"
#include "server/methods.h"
#include "server/service_context.h"

namespace attnd::server {

// What `fn` returns, or INTERNAL for what it throws.
template <typename Fn>
absl::Status Guarded(Fn fn) {
  try {
    return fn();
  } catch (const std::exception& e) {
    return absl::InternalError(std::string("unexpected: ") + e.what());
  }
}

class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  UnaryCall(ServiceContext& service, grpc::CallbackServerContext* context, Method method);

  // Ends the call; exactly once, from any thread. The call may be gone when it returns. `shape`
  // describes the request, never its data, for the log of an INTERNAL error.
  void Answer(const absl::Status& status, const std::string& shape = "");

  // The engine has let go of the call's step.
  void Ran(const Step& step) { span_.Ran(step); }

  // Keeps `charge` until the answer has left.
  void Keep(ByteCharge charge) { charge_ = std::move(charge); }

  // Runs `fn(caller)`; answers with its error, or leaves the call open when it is OK: then the
  // engine owns a step that will answer. Touches nothing of the call after that.
  template <typename Fn>
  void Start(Fn fn) {
    const absl::Status status = Guarded([&]() -> absl::Status {
      absl::StatusOr<Caller> caller = MakeCaller(service_, *context_);
      if (!caller.ok()) {
        return caller.status();
      }
      caller->cancelled = cancelled_;
      return fn(*caller);
    });
    if (!status.ok()) {
      Answer(status);
    }
  }

 private:
  void OnCancel() override;
  void OnDone() override;
  // The two above are short and block on nothing: gRPC need not wake its executor's thread for
  // them.
  bool InternalInlineable() override { return true; }

  ServiceContext& service_;
  grpc::CallbackServerContext* const context_;
  const Method method_;
  CallSpan span_;
  ByteCharge charge_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
};

// A call that is answered at once by `fn(caller)`.
template <typename Fn>
grpc::ServerUnaryReactor* AnswerNow(ServiceContext& service, grpc::CallbackServerContext* context,
                                    Method method, Fn fn) {
  auto* call = new UnaryCall(service, context, method);
  call->Start([&](const Caller& caller) -> absl::Status {
    absl::Status status = fn(caller);
    if (status.ok()) {
      call->Answer(status);
    }
    return status;
  });
  return call;
}

}  // namespace attnd::server
