// Emptying a server: its sessions move to where a balancer sends their keys, while their clients go
// on.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace attnd::client {

struct DrainOptions {
  // How long the balancer may go on sending a key to the server that drains.
  std::chrono::milliseconds route_wait{30'000};
  // After it has stopped: for calls that were on their way. One that came after its session was
  // closed there would fail.
  std::chrono::milliseconds settle{1'000};
  // Also when no other server answers through the balancer: the sessions stay, then.
  bool force = false;
};

// What became of one session.
struct DrainedSession {
  enum class Outcome {
    kMoved,
    kWasThere,  // an earlier drain had brought it, or its client has made it anew; closed here
    kEnded,     // closed or expired before its turn
    kFailed,    // is served where it was
  };

  std::string session_id, affinity_key;
  Outcome outcome = Outcome::kFailed;
  std::string server;  // that has it now
  int64_t bytes = 0;
  std::chrono::milliseconds took{0};
  absl::Status status;  // of a kFailed
};

// Thread-safe, but for Begin.
class Drain {
 public:
  // `source`: the server itself, not the balancer.
  Drain(Client& source, Client& balancer, const DrainOptions& options = {});

  // Tells the server to report itself not ready; it serves on. That cannot be taken back, so before
  // it another server must answer through the balancer: FAILED_PRECONDITION, and nothing has
  // changed.
  absl::Status Begin();
  const std::string& server_id() const { return server_id_; }

  // The sessions that are there, in groups of one key; those used last come first, for their
  // clients wait for them.
  absl::StatusOr<std::vector<std::vector<v1::Session>>> Left();

  // How long the sessions of a key have to wait yet, before this is asked again; 0: they may move.
  // An error when the balancer sends it nowhere, or here for longer than route_wait.
  absl::StatusOr<std::chrono::milliseconds> Wait(const std::string& key);

  // Moves a group whose key may move. `told` hears of each session, and before that of its parts.
  using Told = std::function<void(const DrainedSession& session)>;
  void Move(const std::vector<v1::Session>& group, const Progress& progress, const Told& told);

  // Ends the moves that are under way; those sessions are served where they were.
  void Stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  // What is known of a key.
  struct Key {
    std::chrono::steady_clock::time_point asked;  // first
    std::optional<std::chrono::steady_clock::time_point> left;
  };

  absl::Status FindAnother();
  DrainedSession MoveOne(const v1::Session& session, Client& there, const Progress& progress);
  // The server whose session of that name takes the place of this one; empty: none does.
  std::string IsThere(const std::string& session_id, Client& there);
  void Forget(const std::string& key);

  Client& source_;
  Client& balancer_;
  const DrainOptions options_;
  std::string server_id_;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::map<std::string, Key> keys_;  // guarded by mutex_
};

}  // namespace attnd::client
