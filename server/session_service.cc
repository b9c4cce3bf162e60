// SessionService: the lifecycle of sessions.
#include "server/session_service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "server/build_step.h"
#include "server/export_stream.h"
#include "server/import_stream.h"
#include "server/status_map.h"
#include "server/unary_call.h"
#include "server/validate.h"
#include "server/wire.h"

namespace attnd::server {
namespace {

constexpr int64_t kDefaultPageSize = 100;
constexpr int64_t kMaxPageSize = 1000;

// Of a request that may name one; -1: the server's default.
template <typename Request>
absl::StatusOr<int64_t> ReadIdleTtl(const Request& request) {
  return request.has_idle_ttl() ? CheckDuration("idle_ttl", request.idle_ttl())
                                : absl::StatusOr<int64_t>(-1);
}

absl::StatusOr<CreateOptions> ReadCreate(const Caller& caller,
                                         const v1::CreateSessionRequest& request) {
  CreateOptions options;
  options.tenant = caller.tenant;
  options.id = request.session_id();
  options.prefix_length = request.prefix_length();
  options.max_tokens = request.max_tokens();
  options.affinity_key = request.affinity_key();
  const absl::StatusOr<int64_t> ttl = ReadIdleTtl(request);
  if (!ttl.ok()) {
    return ttl.status();
  }
  options.idle_ttl_ns = *ttl;
  return options;
}

absl::StatusOr<ForkOptions> ReadFork(const v1::ForkSessionRequest& request) {
  ForkOptions options;
  options.id = request.new_session_id();
  options.position = request.position();
  options.max_tokens = request.max_tokens();
  if (options.position < 0) {
    return MakeError(Reason::kBadArgument,
                     absl::StrCat("position is ", options.position, "; expected 0 or more"));
  }
  const absl::StatusOr<int64_t> ttl = ReadIdleTtl(request);
  if (!ttl.ok()) {
    return ttl.status();
  }
  options.idle_ttl_ns = *ttl;
  return options;
}

absl::StatusOr<int64_t> ReadPageSize(int32_t page_size) {
  if (page_size < 0) {
    return MakeError(Reason::kBadArgument,
                     absl::StrCat("page_size is ", page_size, "; expected 0 or more"));
  }
  return page_size == 0 ? kDefaultPageSize : std::min<int64_t>(page_size, kMaxPageSize);
}

}  // namespace

grpc::ServerUnaryReactor* SessionService::CreateSession(grpc::CallbackServerContext* context,
                                                        const v1::CreateSessionRequest* request,
                                                        v1::Session* response) {
  return AnswerNow(
      service_, context, Method::kCreateSession, [&](const Caller& caller) -> absl::Status {
        if (absl::Status status = service_.admission.AdmitWork(); !status.ok()) {
          return status;
        }
        const absl::StatusOr<CreateOptions> options = ReadCreate(caller, *request);
        if (!options.ok()) {
          return options.status();
        }
        const absl::StatusOr<SessionInfo> info = service_.engine->sessions().Create(*options);
        if (info.ok()) {
          WriteSession(*info, response);
        }
        return info.status();
      });
}

grpc::ServerUnaryReactor* SessionService::GetSession(grpc::CallbackServerContext* context,
                                                     const v1::GetSessionRequest* request,
                                                     v1::Session* response) {
  return AnswerNow(
      service_, context, Method::kGetSession, [&](const Caller& caller) -> absl::Status {
        if (absl::Status status = service_.admission.AdmitRead(); !status.ok()) {
          return status;
        }
        if (absl::Status status = CheckSessionId(request->session_id()); !status.ok()) {
          return status;
        }
        const absl::StatusOr<SessionInfo> info =
            service_.engine->sessions().Get(caller.tenant, request->session_id());
        if (info.ok()) {
          WriteSession(*info, response);
        }
        return info.status();
      });
}

grpc::ServerUnaryReactor* SessionService::ListSessions(grpc::CallbackServerContext* context,
                                                       const v1::ListSessionsRequest* request,
                                                       v1::ListSessionsResponse* response) {
  return AnswerNow(
      service_, context, Method::kListSessions, [&](const Caller& caller) -> absl::Status {
        if (absl::Status status = service_.admission.AdmitRead(); !status.ok()) {
          return status;
        }
        const absl::StatusOr<int64_t> size = ReadPageSize(request->page_size());
        if (!size.ok()) {
          return size.status();
        }
        const absl::StatusOr<SessionPage> page =
            service_.engine->sessions().List(caller.tenant, *size, request->page_token());
        if (!page.ok()) {
          return page.status();
        }
        for (const SessionInfo& info : page->sessions) {
          WriteSession(info, response->add_sessions());
        }
        response->set_next_page_token(page->next_page_token);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* SessionService::ForkSession(grpc::CallbackServerContext* context,
                                                      const v1::ForkSessionRequest* request,
                                                      v1::Session* response) {
  auto* call = new UnaryCall(service_, context, Method::kForkSession);
  call->Start([&](const Caller& caller) -> absl::Status {
    if (absl::Status status = service_.admission.AdmitWork(); !status.ok()) {
      return status;
    }
    const absl::StatusOr<ForkOptions> options = ReadFork(*request);
    if (!options.ok()) {
      Touch(service_, caller, request->session_id());
      return options.status();
    }
    absl::StatusOr<std::unique_ptr<Step>> step = BuildOperation(
        service_, caller, request->session_id(),
        [this, options = *options, response](const std::shared_ptr<Session>& session) {
          const absl::StatusOr<SessionInfo> info =
              service_.engine->sessions().Fork(*session, options);
          if (info.ok()) {
            WriteSession(*info, response);
          }
          return info.status();
        });
    if (!step.ok()) {
      return step.status();
    }
    (*step)->done = [call](std::unique_ptr<Step> done) {
      call->Ran(*done);
      const absl::Status outcome = done->Outcome();
      const std::string shape = outcome.ok() ? "" : StepShapeText(*done);
      done.reset();
      call->Answer(outcome, shape);
    };
    return Submit(service_, *std::move(step));
  });
  return call;
}

grpc::ServerUnaryReactor* SessionService::RewindSession(grpc::CallbackServerContext* context,
                                                        const v1::RewindSessionRequest* request,
                                                        v1::Session* response) {
  auto* call = new UnaryCall(service_, context, Method::kRewindSession);
  call->Start([&](const Caller& caller) -> absl::Status {
    absl::StatusOr<std::unique_ptr<Step>> step = BuildRewind(service_, caller, *request);
    if (!step.ok()) {
      return step.status();
    }
    const std::string tenant = caller.tenant;
    (*step)->done = [this, call, response, tenant,
                     id = request->session_id()](std::unique_ptr<Step> done) {
      call->Ran(*done);
      const absl::Status status = Guarded([&]() -> absl::Status {
        absl::Status outcome = done->Outcome();
        if (!outcome.ok()) {
          return outcome;
        }
        const absl::StatusOr<SessionInfo> info = service_.engine->sessions().Get(tenant, id);
        if (info.ok()) {
          WriteSession(*info, response);
        }
        return info.status();
      });
      call->Answer(status, StepShapeText(*done));
    };
    return Submit(service_, *std::move(step));
  });
  return call;
}

grpc::ServerUnaryReactor* SessionService::CloseSession(grpc::CallbackServerContext* context,
                                                       const v1::CloseSessionRequest* request,
                                                       v1::CloseSessionResponse* response) {
  return AnswerNow(
      service_, context, Method::kCloseSession, [&](const Caller& caller) -> absl::Status {
        if (absl::Status status = service_.admission.AdmitRead(); !status.ok()) {
          return status;
        }
        if (absl::Status status = CheckSessionId(request->session_id()); !status.ok()) {
          return status;
        }
        const absl::StatusOr<int64_t> freed =
            service_.engine->sessions().Close(caller.tenant, request->session_id());
        if (freed.ok()) {
          response->set_freed_bytes(*freed);
        }
        return freed.status();
      });
}

grpc::ServerWriteReactor<v1::ExportSessionResponse>* SessionService::ExportSession(
    grpc::CallbackServerContext* context, const v1::ExportSessionRequest* request) {
  return new ExportStream(service_, context, *request);
}

grpc::ServerReadReactor<v1::ImportSessionRequest>* SessionService::ImportSession(
    grpc::CallbackServerContext* context, v1::Session* response) {
  return new ImportStream(service_, context, response);
}

}  // namespace attnd::server
