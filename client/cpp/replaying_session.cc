#include "client/cpp/replaying_session.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "client/cpp/backoff.h"
#include "client/cpp/connection.h"
#include "client/cpp/unary.h"

namespace attnd::client {
namespace {

constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kLongestPause{2'000};
constexpr size_t kLongestId = 128;
constexpr size_t kMostLeftBehind = 4;  // ids of earlier losses that are remembered

bool IsLost(const Error& error) {
  return error.reason == "SESSION_UNKNOWN" || error.reason == "SESSION_EXPIRED" ||
         error.reason == "SESSION_EVICTED";
}

// One that no session has had; it begins with the caller's, if there is one.
std::string NewId(const std::string& name) {
  const std::string random = RandomId();
  return name.empty() ? random : name.substr(0, kLongestId - 1 - random.size()) + "." + random;
}

// One that waits only so long for a session to arrive that may as well be made anew.
std::shared_ptr<Connection> Hasty(const Connection& connection) {
  ClientOptions options = connection.options;
  options.retry.arrival_wait =
      std::min(options.retry.arrival_wait, options.retry.broken_arrival_wait);
  options.retry.broken_arrival_wait = std::chrono::milliseconds(0);
  return std::make_shared<Connection>(connection.target, connection.channel, options);
}

}  // namespace

// The time that one call has, from its first trouble on.
class ReplayingSession::Attempts {
 public:
  explicit Attempts(std::chrono::milliseconds limit) : limit_(limit) {}

  // Waits before the next try; the status when the time is over.
  absl::Status Pause(const absl::Status& status) {
    const auto now = std::chrono::steady_clock::now();
    until_ = until_.value_or(now + limit_);
    const Error error = ErrorOf(status);
    auto pause = pause_;
    if (!IsBroken(error)) {  // those are asked elsewhere
      pause = std::max(pause, error.retry_after.value_or(pause));
    }
    if (now + pause >= *until_) {
      Error last = error;
      last.message +=
          "; not mended within recovery_timeout, " + std::to_string(limit_.count()) + " ms";
      return ToStatus(last);
    }
    std::this_thread::sleep_for(pause);
    pause_ = std::min(2 * pause_, kLongestPause);
    return absl::OkStatus();
  }

  bool replaced = false;  // whether a session that was not where it was has been made anew

 private:
  const std::chrono::milliseconds limit_;
  std::chrono::milliseconds pause_ = kFirstPause;
  std::optional<std::chrono::steady_clock::time_point> until_;
};

ReplayingSession::ReplayingSession(std::shared_ptr<Connection> connection, CreateOptions create,
                                   const ReplayOptions& options, std::unique_ptr<Session> session)
    : client_(std::move(connection)),
      create_(std::move(create)),
      options_(options),
      session_(std::move(session)),
      made_id_(session_->id()),
      history_(session_->num_layers(), session_->d_model_, options.max_history_bytes) {}

absl::StatusOr<std::unique_ptr<ReplayingSession>> ReplayingSession::Create(
    Client& client, const CreateOptions& create, const ReplayOptions& options) {
  std::shared_ptr<Connection> connection = Hasty(*client.connection());
  absl::StatusOr<std::unique_ptr<Session>> session = Client(connection).CreateSession(create);
  if (!session.ok()) {
    return session.status();
  }
  return std::unique_ptr<ReplayingSession>(
      new ReplayingSession(std::move(connection), create, options, *std::move(session)));
}

absl::StatusOr<PrefillResult> ReplayingSession::Prefill(int64_t layer,
                                                        std::span<const float> hidden,
                                                        const PrefillOptions& options) {
  Attempts attempts(options_.recovery_timeout);
  std::span<const float> left = hidden;
  int64_t position = length(layer);
  PrefillResult whole;
  whole.output_position = position;
  const auto take = [&](const PrefillResult& part) {
    const int64_t end = length(layer);
    const auto values = static_cast<size_t>((end - position) * session_->d_model_);
    history_.Put(layer, position, left.first(values));
    left = left.subspan(values);
    position = end;
    Join(part, &whole);
    if (options.on_chunk) {
      options.on_chunk(part);
    }
  };
  while (true) {
    const auto answer = session_->Prefill(layer, left, {options.output_rows, take});
    if (answer.ok()) {
      return whole;
    }
    if (absl::Status status = Mend(answer.status(), &attempts); !status.ok()) {
      return status;
    }
  }
}

absl::StatusOr<std::vector<float>> ReplayingSession::Decode(int64_t layer,
                                                            std::span<const float> hidden) {
  Attempts attempts(options_.recovery_timeout);
  while (true) {
    const int64_t position = length(layer);
    absl::StatusOr<std::vector<float>> answer = session_->Decode(layer, hidden);
    if (answer.ok()) {
      history_.Put(layer, position, hidden);
      return answer;
    }
    if (absl::Status status = Mend(answer.status(), &attempts); !status.ok()) {
      return status;
    }
  }
}

absl::Status ReplayingSession::Rewind(int64_t position) {
  Attempts attempts(options_.recovery_timeout);
  while (true) {
    const absl::Status status = session_->Rewind(position);
    if (status.ok()) {
      history_.Cut(position);
      return status;
    }
    if (absl::Status final = Mend(status, &attempts); !final.ok()) {
      return final;
    }
  }
}

absl::StatusOr<int64_t> ReplayingSession::Close() {
  const absl::StatusOr<int64_t> freed = session_->Close();
  return freed.status().code() == absl::StatusCode::kNotFound ? int64_t{0} : freed;
}

absl::Status ReplayingSession::Mend(const absl::Status& status, Attempts* attempts) {
  const Error error = ErrorOf(status);
  // Positions are kept here: a session that is not where it was is an empty one, left by a Create
  // whose answer was lost.
  const bool other =
      error.reason == "POSITION_MISMATCH" && !std::exchange(attempts->replaced, true);
  const bool lost = (IsLost(error) || other) && history_.complete();
  if (!lost && !IsBroken(error)) {
    return status;
  }
  if (absl::Status late = attempts->Pause(status); !late.ok()) {
    return late;
  }
  // After a broken call the session repeats it by itself, with a rewind.
  return lost ? Rebuild(!other, attempts) : absl::OkStatus();
}

absl::Status ReplayingSession::Rebuild(bool find, Attempts* attempts) {
  while (true) {
    absl::Status status = find ? Find() : MakeAnew();
    if (find && IsLost(ErrorOf(status))) {
      status = MakeAnew();
    }
    find = find || made_id_ != session_->id();
    if (status.ok()) {
      status = Replay();
    }
    const Error error = ErrorOf(status);
    // A server that is full may get room until the time is over.
    if (status.ok() || (!IsLost(error) && !IsBroken(error) && !error.retry_after.has_value())) {
      return status;
    }
    if (absl::Status late = attempts->Pause(status); !late.ok()) {
      return late;
    }
  }
}

absl::Status ReplayingSession::Find() { return Take(client_.AttachSession(made_id_)); }

absl::Status ReplayingSession::Take(absl::StatusOr<std::unique_ptr<Session>> session) {
  if (session.ok()) {
    session_ = *std::move(session);
    return absl::OkStatus();
  }
  return session.status();
}

absl::Status ReplayingSession::MakeAnew() {
  CloseLeftBehind();
  CreateOptions create = create_;
  create.session_id = NewId(create_.session_id);
  absl::StatusOr<std::unique_ptr<Session>> session = client_.CreateSession(create);
  if (session.ok() || IsBroken(ErrorOf(session.status()))) {  // perhaps its answer was lost
    left_behind_.push_back(std::exchange(made_id_, create.session_id));
    if (left_behind_.size() > kMostLeftBehind) {
      left_behind_.erase(left_behind_.begin());
    }
  }
  return Take(std::move(session));
}

void ReplayingSession::CloseLeftBehind() {
  std::erase_if(left_behind_, [&, reached = true](const std::string& id) mutable {
    const absl::Status closed =
        reached ? client_.CloseSession(id).status() : absl::UnavailableError("");
    reached = closed.ok() || closed.code() == absl::StatusCode::kNotFound;
    return closed.ok();
  });
}

absl::Status ReplayingSession::Replay() {
  for (int64_t layer = 0; layer < session_->num_layers(); ++layer) {
    Session::Layer& state = session_->layers_[static_cast<size_t>(layer)];
    if (state.length > history_.length(layer)) {  // by a step that was not answered
      state = {history_.length(layer), state.length};
    }
    while (session_->length(layer) < history_.length(layer)) {
      const int64_t begin = session_->length(layer);
      const auto sent =
          session_->Prefill(layer, history_.Rows(layer, begin, history_.NextStop(layer, begin)),
                            {OutputRows::kNone, {}});
      if (!sent.ok()) {
        return sent.status();
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace attnd::client
