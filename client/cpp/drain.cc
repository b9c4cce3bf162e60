#include "client/cpp/drain.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "client/cpp/move.h"

namespace attnd::client {
namespace {

constexpr std::chrono::milliseconds kRoutePoll{100};

absl::Status Refuse(const std::string& message) {
  return ToStatus({absl::StatusCode::kFailedPrecondition, "", message, std::nullopt});
}

// When the session was used last, but for its time to live.
int64_t Recency(const v1::Session& session) { return session.expire_time().seconds(); }

int64_t Recency(const std::vector<v1::Session>& group) {
  int64_t last = 0;
  for (const v1::Session& session : group) {
    last = std::max(last, Recency(session));
  }
  return last;
}

absl::StatusOr<v1::Session> Look(Client& client, const std::string& session_id) {
  const absl::StatusOr<std::unique_ptr<Session>> session = client.AttachSession(session_id);
  if (!session.ok()) {
    return session.status();
  }
  return (*session)->Refresh();
}

}  // namespace

Drain::Drain(Client& source, Via via, const DrainOptions& options)
    : source_(source), via_(std::move(via)), options_(options) {}

absl::Status Drain::Begin() {
  const absl::StatusOr<v1::Stats> stats = source_.Stats();
  if (!stats.ok()) {
    return stats.status();
  }
  server_id_ = stats->server_id();
  return source_.Drain().status();
}

absl::StatusOr<std::vector<std::vector<v1::Session>>> Drain::Left() {
  const absl::StatusOr<std::vector<v1::Session>> sessions = source_.ListSessions();
  if (!sessions.ok()) {
    return sessions.status();
  }
  std::map<std::string, std::vector<v1::Session>> by_key;
  for (const v1::Session& session : *sessions) {
    by_key[session.affinity_key()].push_back(session);
  }
  std::vector<std::vector<v1::Session>> groups;
  for (auto& [key, group] : by_key) {
    groups.push_back(std::move(group));
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return Recency(a) > Recency(b); });
  return groups;
}

void Drain::Settle() {
  std::call_once(settled_, [this] { std::this_thread::sleep_for(options_.settle); });
}

absl::StatusOr<std::unique_ptr<Client>> Drain::Route(const std::string& key, std::string* server) {
  if (key.empty()) {
    return Refuse("it has no affinity key: at another server its client would not find it");
  }
  absl::StatusOr<std::unique_ptr<Client>> there = via_(key);
  if (!there.ok()) {
    return there;
  }
  const auto until = std::chrono::steady_clock::now() + options_.route_wait;
  while (true) {
    const absl::StatusOr<v1::Stats> stats = (*there)->Stats();
    if (!stats.ok()) {
      return stats.status();
    }
    if (stats->server_id() != server_id_) {
      *server = stats->server_id();
      Settle();
      return there;
    }
    if (std::chrono::steady_clock::now() >= until) {
      return Refuse("the balancer sends its key here yet, " +
                    std::to_string(options_.route_wait.count()) + " ms after the drain began");
    }
    std::this_thread::sleep_for(kRoutePoll);
  }
}

bool Drain::IsThere(const std::string& session_id, Client& there) {
  const absl::StatusOr<v1::Session> left = Look(source_, session_id);
  const absl::StatusOr<v1::Session> held = Look(there, session_id);
  if (!left.ok() || !held.ok() || held->affinity_key() != left->affinity_key() ||
      held->prefix_length() != left->prefix_length() ||
      held->layer_lengths_size() != left->layer_lengths_size()) {
    return false;
  }
  return std::equal(left->layer_lengths().begin(), left->layer_lengths().end(),
                    held->layer_lengths().begin(),
                    [](int64_t here, int64_t length) { return here <= length; });
}

DrainedSession Drain::MoveOne(const v1::Session& session, Client& there, const Progress& progress) {
  DrainedSession result;
  result.session_id = session.session_id();
  result.affinity_key = session.affinity_key();
  const auto start = std::chrono::steady_clock::now();
  const auto moved =
      MoveSession(source_, session.session_id(), there, [&](int64_t done, int64_t total) {
        result.bytes = done;
        if (progress) {
          progress(done, total);
        }
      });
  result.took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  result.status = moved.status();
  if (moved.ok()) {
    result.outcome = DrainedSession::Outcome::kMoved;
    return result;
  }
  const Error error = ErrorOf(moved.status());
  if (error.code == absl::StatusCode::kNotFound && !Look(source_, result.session_id).ok()) {
    result.outcome = DrainedSession::Outcome::kEnded;
  } else if (error.reason == "SESSION_EXISTS" && IsThere(result.session_id, there) &&
             source_.CloseSession(result.session_id).ok()) {
    result.outcome = DrainedSession::Outcome::kWasThere;
  }
  if (result.outcome != DrainedSession::Outcome::kFailed) {
    result.status = absl::OkStatus();
    result.bytes = 0;
  }
  return result;
}

void Drain::Move(const std::vector<v1::Session>& group, const Progress& progress,
                 const Told& told) {
  std::string server;
  const auto there = Route(group.empty() ? std::string() : group[0].affinity_key(), &server);
  for (const v1::Session& session : group) {
    DrainedSession result;
    if (there.ok()) {
      result = MoveOne(session, **there, progress);
    } else {
      result.session_id = session.session_id();
      result.affinity_key = session.affinity_key();
      result.status = there.status();
    }
    if (result.outcome == DrainedSession::Outcome::kMoved ||
        result.outcome == DrainedSession::Outcome::kWasThere) {
      result.server = server;
    }
    told(result);
  }
}

}  // namespace attnd::client
