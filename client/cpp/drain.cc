#include "client/cpp/drain.h"

#include <algorithm>
#include <utility>

#include "client/cpp/move.h"
#include "client/cpp/unary.h"

namespace attnd::client {
namespace {

constexpr std::chrono::milliseconds kRoutePoll{100};
// Keys that are asked about before a drain: with two servers alike, one in 2^64 drains meets one
// of them only. And how many of them may fail.
constexpr int kProbes = 64;
constexpr int kFailedProbes = 3;

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

}  // namespace

Drain::Drain(Client& source, Client& balancer, const DrainOptions& options)
    : source_(source), balancer_(balancer), options_(options) {}

absl::Status Drain::Begin() {
  const absl::StatusOr<v1::Stats> stats = source_.Stats();
  if (!stats.ok()) {
    return stats.status();
  }
  server_id_ = stats->server_id();
  if (absl::Status status = FindAnother(); !status.ok() && !options_.force) {
    return status;
  }
  if (stopped()) {
    return absl::CancelledError("stopped before it began");
  }
  return source_.Drain().status();
}

// The keys of the sessions lead to this very server as long as it is ready, so that others are
// asked about.
absl::Status Drain::FindAnother() {
  absl::Status failed;
  int failures = 0;
  for (int i = 0; i < kProbes && failures < kFailedProbes; ++i) {
    const auto client = balancer_.WithKey(RandomId());
    const absl::StatusOr<v1::Stats> stats = client.ok() ? (*client)->Stats() : client.status();
    if (stats.ok() && !stats->server_id().empty() && stats->server_id() != server_id_) {
      return absl::OkStatus();
    }
    if (!stats.ok()) {
      failed = stats.status();
      ++failures;
    }
  }
  return Refuse(failed.ok() ? "through the balancer only the server itself answers, " + server_id_ +
                                  "; nothing was changed"
                            : "no other server answers through the balancer: " +
                                  std::string(failed.message()) + "; nothing was changed");
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

absl::StatusOr<std::chrono::milliseconds> Drain::Wait(const std::string& key) {
  if (key.empty()) {
    return Refuse("it has no affinity key: at another server its client would not find it");
  }
  const auto now = std::chrono::steady_clock::now();
  Key known;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    known = keys_.try_emplace(key, Key{now, std::nullopt}).first->second;
  }
  if (known.left.has_value()) {
    return std::max(std::chrono::milliseconds(0), std::chrono::ceil<std::chrono::milliseconds>(
                                                      *known.left + options_.settle - now));
  }
  const auto there = balancer_.WithKey(key);
  const absl::StatusOr<v1::Stats> stats = there.ok() ? (*there)->Stats() : there.status();
  if (!stats.ok()) {
    Forget(key);
    return stats.status();
  }
  if (stats->server_id() != server_id_) {
    const std::lock_guard<std::mutex> lock(mutex_);
    keys_[key].left = std::chrono::steady_clock::now();
    return options_.settle;
  }
  if (now - known.asked >= options_.route_wait) {
    Forget(key);
    return Refuse("the balancer sends its key here yet, after " +
                  std::to_string(options_.route_wait.count()) + " ms");
  }
  return kRoutePoll;
}

void Drain::Forget(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  keys_.erase(key);
}

std::string Drain::IsThere(const std::string& session_id, Client& there) {
  const absl::StatusOr<FoundSession> left = source_.FindSession(session_id);
  const absl::StatusOr<FoundSession> held = there.FindSession(session_id);
  const bool is_there = left.ok() && held.ok() && !left->server.empty() &&
                        left->server != held->server && TakesThePlace(held->session, left->session);
  return is_there ? held->server : "";
}

DrainedSession Drain::MoveOne(const v1::Session& session, Client& there, const Progress& progress) {
  DrainedSession result;
  result.session_id = session.session_id();
  result.affinity_key = session.affinity_key();
  const auto start = std::chrono::steady_clock::now();
  const auto note = [&](int64_t done, int64_t total) {
    result.bytes = done;
    if (progress) {
      progress(done, total);
    }
  };
  const absl::StatusOr<FoundSession> moved =
      SendSession(source_, session.session_id(), there, {note, [this] { return stopped(); }});
  result.took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  result.status = moved.status();
  if (moved.ok()) {
    result.outcome = DrainedSession::Outcome::kMoved;
    result.server = moved->server;
    return result;
  }
  const Error error = ErrorOf(moved.status());
  if (error.code == absl::StatusCode::kNotFound &&
      source_.FindSession(result.session_id).status().code() == absl::StatusCode::kNotFound) {
    result.outcome = DrainedSession::Outcome::kEnded;
  } else if (error.reason == "SESSION_EXISTS") {
    const std::string server = IsThere(result.session_id, there);
    if (!server.empty() && source_.CloseSession(result.session_id).ok()) {
      result.outcome = DrainedSession::Outcome::kWasThere;
      result.server = server;
    }
  }
  if (result.outcome != DrainedSession::Outcome::kFailed) {
    result.status = absl::OkStatus();
    result.bytes = 0;
  } else {
    Forget(result.affinity_key);  // the balancer may have changed its mind
  }
  return result;
}

void Drain::Move(const std::vector<v1::Session>& group, const Progress& progress,
                 const Told& told) {
  const auto there = balancer_.WithKey(group.empty() ? std::string() : group[0].affinity_key());
  for (const v1::Session& session : group) {
    if (stopped()) {
      return;
    }
    DrainedSession result;
    if (there.ok()) {
      result = MoveOne(session, **there, progress);
    } else {
      result.session_id = session.session_id();
      result.affinity_key = session.affinity_key();
      result.status = there.status();
    }
    told(result);
  }
}

}  // namespace attnd::client
