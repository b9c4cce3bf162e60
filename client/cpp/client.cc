#include "client/cpp/client.h"

#include <algorithm>
#include <set>
#include <utility>

#include "client/cpp/channel.h"
#include "client/cpp/connection.h"
#include "client/cpp/tensor.h"
#include "client/cpp/unary.h"

namespace attnd::client {
namespace {

// What a message holds beside its rows; generous.
constexpr int64_t kMessageOverhead = 64 << 10;
constexpr int32_t kListPage = 1000;

absl::Status CheckOptions(const ClientOptions& options) {
  const auto bad = [](const std::string& message) { return absl::InvalidArgumentError(message); };
  if (options.max_message_bytes <= 2 * kMessageOverhead) {
    return bad("max_message_bytes: " + std::to_string(options.max_message_bytes) +
               "; expected more than " + std::to_string(2 * kMessageOverhead));
  }
  if (options.deadline.count() <= 0 || options.connect_timeout.count() <= 0) {
    return bad("deadline, connect_timeout: expected more than 0 ms");
  }
  if (options.prefill_rows < 0 || options.retry.max_attempts < 1) {
    return bad("prefill_rows, retry.max_attempts: expected at least 0 and 1");
  }
  if (options.tls.certificate.empty() != options.tls.private_key.empty()) {
    return bad("tls.certificate, tls.private_key: expected both or neither");
  }
  for (const char c : options.session_key) {
    if (c < ' ' || c > '~') {
      return bad("session_key: expected printable ASCII");
    }
  }
  for (const char c : options.auth_token) {
    if (c <= ' ' || c > '~') {
      return bad("auth_token: expected printable ASCII without spaces");
    }
  }
  return absl::OkStatus();
}

int64_t MessageRows(const ClientOptions& options, const v1::ModelInfo& model) {
  const int64_t limit = std::min(options.max_message_bytes, model.max_message_bytes());
  const int64_t row = model.d_model() * DTypeSize(options.wire_dtype);
  return std::max<int64_t>(1, (limit - kMessageOverhead) / row);
}

// 0 leaves the field unset: the server's default.
template <typename Request>
void SetTtl(std::chrono::milliseconds ttl, Request* request) {
  if (ttl.count() != 0) {
    request->mutable_idle_ttl()->set_seconds(ttl.count() / 1000);
    request->mutable_idle_ttl()->set_nanos(static_cast<int32_t>(ttl.count() % 1000 * 1'000'000));
  }
}

}  // namespace

bool DecodeResult::all_ok() const {
  return std::all_of(statuses.begin(), statuses.end(),
                     [](const absl::Status& status) { return status.ok(); });
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::string& target,
                                                        const ClientOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) {
    return status;
  }
  ClientOptions filled = options;
  if (filled.session_key.empty()) {
    filled.session_key = RandomId();
  }
  auto channel = OpenChannel(target, filled);
  if (!channel.ok()) {
    return channel.status();
  }
  return std::unique_ptr<Client>(
      new Client(std::make_shared<Connection>(target, *std::move(channel), filled)));
}

absl::StatusOr<std::unique_ptr<Client>> Client::WithKey(const std::string& key) const {
  ClientOptions keyed = connection_->options;
  keyed.session_key = key;
  if (absl::Status status = CheckOptions(keyed); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Client>(
      new Client(std::make_shared<Connection>(connection_->target, connection_->channel, keyed)));
}

const ClientOptions& Client::options() const { return connection_->options; }

absl::StatusOr<v1::ModelInfo> Client::Model() {
  {
    std::lock_guard<std::mutex> lock(connection_->mutex);
    if (connection_->model.has_value()) {
      return *connection_->model;
    }
  }
  v1::ModelInfo model;
  const CallOutcome call = CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool) {
    return connection_->models->GetModel(context, v1::GetModelRequest(), &model);
  });
  if (!call.status.ok()) {
    return call.status;
  }
  if (model.d_model() < 1 || model.layers_size() < 1) {
    return absl::InternalError("GetModel: the server reports no layers or no width");
  }
  std::lock_guard<std::mutex> lock(connection_->mutex);
  connection_->model = model;
  return model;
}

absl::StatusOr<std::unique_ptr<Session>> Client::CreateSession(const CreateOptions& create) {
  v1::CreateSessionRequest request;
  // Named here, so that a repeated Create finds the session that a lost answer made.
  request.set_session_id(create.session_id.empty() ? RandomId() : create.session_id);
  request.set_prefix_length(create.prefix_length);
  request.set_max_tokens(create.max_tokens);
  request.set_affinity_key(connection_->options.session_key);
  SetTtl(create.idle_ttl, &request);
  v1::Session session;
  const CallOutcome call = CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool) {
    return connection_->sessions->CreateSession(context, request, &session);
  });
  if (call.uncertain && ErrorOf(call.status).reason == "SESSION_EXISTS") {
    return AttachSession(request.session_id());
  }
  if (!call.status.ok()) {
    return call.status;
  }
  return Open(session);
}

absl::StatusOr<std::unique_ptr<Session>> Client::ForkSession(const std::string& session_id,
                                                             const ForkOptions& fork) {
  v1::ForkSessionRequest request;
  request.set_session_id(session_id);
  request.set_new_session_id(fork.new_session_id.empty() ? RandomId() : fork.new_session_id);
  request.set_position(fork.position);
  request.set_max_tokens(fork.max_tokens);
  SetTtl(fork.idle_ttl, &request);
  v1::Session session;
  const CallOutcome call = CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool) {
    return connection_->sessions->ForkSession(context, request, &session);
  });
  if (call.uncertain && ErrorOf(call.status).reason == "SESSION_EXISTS") {
    return AttachSession(request.new_session_id());
  }
  if (!call.status.ok()) {
    return call.status;
  }
  return Open(session);
}

absl::StatusOr<std::unique_ptr<Session>> Client::Open(const v1::Session& session) {
  const absl::StatusOr<v1::ModelInfo> model = Model();
  if (!model.ok()) {
    return model.status();
  }
  return std::unique_ptr<Session>(new Session(connection_, session, model->d_model(),
                                              MessageRows(connection_->options, *model)));
}

absl::StatusOr<std::unique_ptr<Session>> Client::AttachSession(const std::string& session_id) {
  v1::Session named;
  named.set_session_id(session_id);
  absl::StatusOr<std::unique_ptr<Session>> session = Open(named);
  if (!session.ok()) {
    return session;
  }
  if (const auto refreshed = (*session)->Refresh(); !refreshed.ok()) {
    return refreshed.status();
  }
  return session;
}

absl::StatusOr<FoundSession> Client::FindSession(const std::string& session_id) {
  v1::GetSessionRequest request;
  request.set_session_id(session_id);
  FoundSession found;
  CallOutcome call = CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool) {
    return connection_->sessions->GetSession(context, request, &found.session);
  });
  if (!call.status.ok()) {
    return call.status;
  }
  found.server = std::move(call.server);
  return found;
}

absl::StatusOr<std::vector<v1::Session>> Client::ListSessions() {
  std::vector<v1::Session> sessions;
  std::set<std::string> tokens;  // had before
  v1::ListSessionsRequest request;
  request.set_page_size(kListPage);
  do {
    v1::ListSessionsResponse page;
    const CallOutcome call = CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool) {
      return connection_->sessions->ListSessions(context, request, &page);
    });
    if (!call.status.ok()) {
      return call.status;
    }
    const std::string& next = page.next_page_token();
    if (!next.empty() &&
        (page.sessions().empty() || next == request.page_token() || !tokens.insert(next).second)) {
      return absl::InternalError("ListSessions: the server repeats itself: page_token " +
                                 request.page_token() + " leads to " + next);
    }
    sessions.insert(sessions.end(), page.sessions().begin(), page.sessions().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return sessions;
}

absl::StatusOr<int64_t> Client::CloseSession(const std::string& session_id) {
  v1::CloseSessionRequest request;
  request.set_session_id(session_id);
  v1::CloseSessionResponse response;
  bool repeated = false;
  const CallOutcome call =
      CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool uncertain) {
        repeated = uncertain;
        return connection_->sessions->CloseSession(context, request, &response);
      });
  if (repeated && ErrorOf(call.status).reason == "SESSION_CLOSED") {
    return 0;  // by the try whose answer was lost
  }
  if (!call.status.ok()) {
    return call.status;
  }
  return response.freed_bytes();
}

absl::StatusOr<std::unique_ptr<Session>> Session::Fork(const ForkOptions& fork) {
  return Client(connection_).ForkSession(id_, fork);
}

absl::StatusOr<int64_t> Session::Close() { return Client(connection_).CloseSession(id_); }

absl::StatusOr<v1::Stats> Client::Stats() {
  v1::Stats stats;
  const CallOutcome call = CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool) {
    return connection_->admin->GetStats(context, v1::GetStatsRequest(), &stats);
  });
  if (!call.status.ok()) {
    return call.status;
  }
  return stats;
}

absl::StatusOr<int64_t> Client::Drain() {
  v1::DrainResponse response;
  const CallOutcome call = CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool) {
    return connection_->admin->Drain(context, v1::DrainRequest(), &response);
  });
  if (!call.status.ok()) {
    return call.status;
  }
  return response.sessions();
}

}  // namespace attnd::client
