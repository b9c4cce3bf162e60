// SessionService: the lifecycle of sessions.
#include "server/session_service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "server/build_step.h"
#include "server/refused_stream.h"
#include "server/status_map.h"
#include "server/unary_call.h"
#include "server/validate.h"
#include "server/wire.h"

namespace attnd::server {
namespace {

constexpr int64_t kDefaultPageSize = 100;
constexpr int64_t kMaxPageSize = 1000;

absl::Status NotImplemented(const char* what) {
  return MakeError(Reason::kNotImplemented,
                   absl::StrCat(what, " is not implemented in this version of attnd"));
}

absl::StatusOr<CreateOptions> ReadCreate(const Caller& caller,
                                         const v1::CreateSessionRequest& request) {
  CreateOptions options;
  options.tenant = caller.tenant;
  options.id = request.session_id();
  options.prefix_length = request.prefix_length();
  options.max_tokens = request.max_tokens();
  options.affinity_key = request.affinity_key();
  if (request.has_idle_ttl()) {
    const absl::StatusOr<int64_t> ttl = CheckDuration("idle_ttl", request.idle_ttl());
    if (!ttl.ok()) {
      return ttl.status();
    }
    options.idle_ttl_ns = *ttl;
  }
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
                                                      const v1::ForkSessionRequest* /*request*/,
                                                      v1::Session* /*response*/) {
  return AnswerNow(service_, context, Method::kForkSession,
                   [](const Caller&) { return NotImplemented("ForkSession"); });
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
    grpc::CallbackServerContext* context, const v1::ExportSessionRequest* /*request*/) {
  return new RefusedStream<grpc::ServerWriteReactor<v1::ExportSessionResponse>>(
      service_, context, Method::kExportSession, NotImplemented("ExportSession"));
}

grpc::ServerReadReactor<v1::ImportSessionRequest>* SessionService::ImportSession(
    grpc::CallbackServerContext* context, v1::Session* /*response*/) {
  return new RefusedStream<grpc::ServerReadReactor<v1::ImportSessionRequest>>(
      service_, context, Method::kImportSession, NotImplemented("ImportSession"));
}

}  // namespace attnd::server
