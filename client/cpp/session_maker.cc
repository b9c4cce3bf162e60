#include "client/cpp/session_maker.h"

#include <utility>

#include "client/cpp/connection.h"
#include "client/cpp/unary.h"

namespace attnd::client {
namespace {

constexpr size_t kLongestId = 128;
constexpr size_t kMostLeftBehind = 16;  // the oldest are forgotten: they expire

// One that no session has had; it begins with the caller's, if there is one.
std::string NewId(const std::string& name) {
  const std::string random = RandomId();
  return name.empty() ? random : name.substr(0, kLongestId - 1 - random.size()) + "." + random;
}

// One that repeats nothing by itself.
std::shared_ptr<Connection> Once(const Connection& connection) {
  ClientOptions options = connection.options;
  options.retry.max_attempts = 1;
  options.retry.move_wait = std::chrono::milliseconds(0);
  options.retry.arrival_wait = std::chrono::milliseconds(0);
  auto once = std::make_shared<Connection>(connection.target, connection.channel, options);
  once->replica = connection.replica;
  return once;
}

}  // namespace

SessionMaker::SessionMaker(std::shared_ptr<Connection> connection, CreateOptions create)
    : connection_(std::move(connection)),
      once_(Once(*connection_)),
      create_(std::move(create)),
      next_id_(create_.session_id.empty() ? NewId("") : create_.session_id) {}

absl::StatusOr<std::unique_ptr<Session>> SessionMaker::Make() {
  CloseLeftBehind();
  // Asked for first, so that what fails below is the Create.
  if (const auto model = once_.Model(); !model.ok()) {
    return model.status();
  }
  CreateOptions create = create_;
  create.session_id = next_id_;
  absl::StatusOr<std::unique_ptr<Session>> session = once_.CreateSession(create);
  const Error error = ErrorOf(session.status());
  if (!error.no_effect() || error.reason == "SESSION_EXISTS") {
    next_id_ = NewId(create_.session_id);
  }
  if (session.ok()) {
    (*session)->connection_ = connection_;
  } else if (!error.no_effect()) {
    Leave(create.session_id);
  }
  return session;
}

void SessionMaker::Leave(const std::string& id) {
  if (id == create_.session_id) {
    return;  // another client may have a session of the same name by now
  }
  left_behind_.push_back(id);
  if (left_behind_.size() > kMostLeftBehind) {
    left_behind_.erase(left_behind_.begin());
  }
}

void SessionMaker::CloseLeftBehind() {
  bool reached = true;
  std::vector<std::string> left;
  for (const std::string& id : left_behind_) {
    const absl::Status closed =
        reached ? once_.CloseSession(id).status() : absl::UnavailableError("");
    reached = closed.ok() || closed.code() == absl::StatusCode::kNotFound;
    if (!closed.ok()) {
      left.push_back(id);
    }
  }
  left_behind_ = std::move(left);
}

}  // namespace attnd::client
