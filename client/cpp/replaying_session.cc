#include "client/cpp/replaying_session.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "client/cpp/backoff.h"
#include "client/cpp/connection.h"

namespace attnd::client {
namespace {

constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kLongestPause{2'000};

bool IsLost(const Error& error) {
  return error.reason == "SESSION_UNKNOWN" || error.reason == "SESSION_EXPIRED" ||
         error.reason == "SESSION_EVICTED";
}

// Of the session's positions, as the server words it.
absl::Status Mismatch(const std::string& message) {
  return ToStatus(
      {absl::StatusCode::kFailedPrecondition, "POSITION_MISMATCH", message, std::nullopt});
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

ReplayingSession::ReplayingSession(const std::shared_ptr<Connection>& connection,
                                   SessionMaker maker, const ReplayOptions& options,
                                   std::unique_ptr<Session> session)
    : client_(connection),
      maker_(std::move(maker)),
      options_(options),
      session_(std::move(session)),
      history_(session_->num_layers(), session_->d_model_, options.max_history_bytes) {}

absl::StatusOr<std::unique_ptr<ReplayingSession>> ReplayingSession::Create(
    Client& client, const CreateOptions& create, const ReplayOptions& options) {
  const std::shared_ptr<Connection> connection = Hasty(*client.connection());
  SessionMaker maker(connection, create);
  Attempts attempts(options.recovery_timeout);
  while (true) {
    absl::StatusOr<std::unique_ptr<Session>> session = maker.Make();
    if (session.ok()) {
      return std::unique_ptr<ReplayingSession>(
          new ReplayingSession(connection, std::move(maker), options, *std::move(session)));
    }
    const Error error = ErrorOf(session.status());
    const bool advised = client.options().retry.wait_when_advised && error.retry_after.has_value();
    if (!IsBroken(error) && !advised) {
      return session.status();
    }
    if (absl::Status late = attempts.Pause(session.status()); !late.ok()) {
      return late;
    }
  }
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
    const absl::Status status = CutTo(position);
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
  const bool absent = freed.status().code() == absl::StatusCode::kNotFound;
  closed_ = freed.ok() || absent;
  if (closed_) {  // else no server answers
    maker_.CloseLeftBehind();
  }
  return absent ? int64_t{0} : freed;
}

absl::Status ReplayingSession::Mend(const absl::Status& status, Attempts* attempts) {
  const bool complete = history_.complete() && !closed_;
  if (complete) {
    DoubtWhatIsNotKept();
  }
  const Error error = ErrorOf(status);
  // Positions are kept here: a session that is not where it was is not this one.
  const bool other =
      complete && error.reason == "POSITION_MISMATCH" && !std::exchange(attempts->replaced, true);
  const bool lost = complete && IsLost(error);
  if (!other && !lost && !IsBroken(error)) {
    return status;
  }
  if (absl::Status late = attempts->Pause(status); !late.ok()) {
    return late;
  }
  // After a broken call the session repeats it by itself, with a rewind.
  return other || lost ? Recover(lost, attempts) : absl::OkStatus();
}

absl::Status ReplayingSession::Recover(bool find, Attempts* attempts) {
  std::unique_ptr<Session> candidate;
  absl::Status status;
  while (true) {
    status = TryToRecover(find, &candidate);
    const Error error = ErrorOf(status);
    // A server that is full may get room until the time is over.
    if (status.ok() || (!IsLost(error) && !IsBroken(error) && !error.retry_after.has_value())) {
      break;
    }
    if (absl::Status late = attempts->Pause(status); !late.ok()) {
      status = late;
      break;
    }
  }
  if (candidate != nullptr) {
    maker_.Leave(candidate->id());
  }
  return status;
}

absl::Status ReplayingSession::TryToRecover(bool find, std::unique_ptr<Session>* candidate) {
  if (*candidate == nullptr) {
    const absl::StatusOr<bool> found = find ? IsWhereItWas() : false;
    if (!found.ok() || *found) {
      return found.status();
    }
    absl::StatusOr<std::unique_ptr<Session>> made = maker_.Make();
    if (!made.ok()) {
      return made.status();
    }
    *candidate = *std::move(made);
  }
  const absl::Status status = Replay(candidate->get());
  if (status.ok()) {
    session_.swap(*candidate);
  }
  if (status.ok() || IsLost(ErrorOf(status))) {
    maker_.Leave((*candidate)->id());
    candidate->reset();
  }
  return status;
}

absl::StatusOr<bool> ReplayingSession::IsWhereItWas() {
  const absl::StatusOr<FoundSession> found = client_.FindSession(session_->id());
  if (!found.ok()) {
    return IsLost(ErrorOf(found.status())) ? absl::StatusOr<bool>(false) : found.status();
  }
  const auto& lengths = found->session.layer_lengths();
  const auto same = [](const Session::Layer& layer, int64_t length) {
    return length == layer.length || (layer.perhaps > 0 && length > layer.length);
  };
  return std::equal(session_->layers_.begin(), session_->layers_.end(), lengths.begin(),
                    lengths.end(), same);
}

absl::Status ReplayingSession::Replay(Session* candidate) const {
  if (candidate->num_layers() != session_->num_layers()) {
    return Mismatch("the session made anew has other layers");
  }
  for (int64_t layer = 0; layer < candidate->num_layers(); ++layer) {
    while (candidate->length(layer) < history_.length(layer)) {
      // A call whose fate is unknown is repeated by the candidate, with a rewind.
      const int64_t begin = candidate->length(layer);
      const auto sent =
          candidate->Prefill(layer, history_.Rows(layer, begin, history_.NextStop(layer, begin)),
                             {OutputRows::kNone, {}});
      if (!sent.ok()) {
        return sent.status();
      }
    }
    if (candidate->length(layer) > history_.length(layer)) {
      return Mismatch("the session made anew is longer than what it was sent");
    }
  }
  return absl::OkStatus();
}

absl::Status ReplayingSession::CutTo(int64_t position) {
  const std::vector<Session::Layer> before = session_->layers_;
  const absl::Status status = session_->Rewind(position);
  if (!status.ok() || !history_.complete()) {
    return status;
  }
  const auto same = [&](const Session::Layer& layer, const Session::Layer& was) {
    return layer.length == std::min(was.length, position);
  };
  if (std::equal(session_->layers_.begin(), session_->layers_.end(), before.begin(), before.end(),
                 same)) {
    return status;
  }
  session_->layers_ = before;
  return Mismatch("rewind: the server's session was not as long as this one");
}

void ReplayingSession::DoubtWhatIsNotKept() {
  for (int64_t layer = 0; layer < session_->num_layers(); ++layer) {
    Session::Layer& state = session_->layers_[static_cast<size_t>(layer)];
    if (state.length > history_.length(layer)) {
      state = {history_.length(layer), state.length};
    }
  }
}

}  // namespace attnd::client
