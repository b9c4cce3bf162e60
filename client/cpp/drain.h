// Emptying a server: its sessions move to where a balancer sends their keys, while their clients go
// on.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
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
  // A client of the balancer whose calls carry this key.
  using Via = std::function<absl::StatusOr<std::unique_ptr<Client>>(const std::string& key)>;

  // `source`: the server itself, not the balancer.
  Drain(Client& source, Via via, const DrainOptions& options = {});

  // Tells the server to report itself not ready; it serves on.
  absl::Status Begin();
  const std::string& server_id() const { return server_id_; }

  // The sessions that are there, in groups of one key; those used last come first, for their
  // clients wait for them.
  absl::StatusOr<std::vector<std::vector<v1::Session>>> Left();

  // Moves a group. `told` hears of each session, and before that of its parts.
  using Told = std::function<void(const DrainedSession& session)>;
  void Move(const std::vector<v1::Session>& group, const Progress& progress, const Told& told);

 private:
  // The client for a key that is sent elsewhere, and where.
  absl::StatusOr<std::unique_ptr<Client>> Route(const std::string& key, std::string* server);
  void Settle();
  DrainedSession MoveOne(const v1::Session& session, Client& there, const Progress& progress);
  // Whether the session of that name at its new place takes the place of this one.
  bool IsThere(const std::string& session_id, Client& there);

  Client& source_;
  const Via via_;
  const DrainOptions options_;
  std::string server_id_;
  std::once_flag settled_;
};

}  // namespace attnd::client
