// Moving a session from one server to another while its client waits.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace attnd::client {

// Streams the session from `source` to `target` and closes it there; its steps meanwhile wait
// (SESSION_MOVING, which this library's clients repeat). On failure it is served at `source` as
// before, and the error says so where it is not. The session, as `target` has it.
//
// `target` may be a balancer, which may lead back to the source's own server. So the source is
// closed only when another server has said, in its own answer, that it has the session.
absl::StatusOr<std::unique_ptr<Session>> MoveSession(Client& source, const std::string& session_id,
                                                     Client& target, const Progress& progress = {});

struct SendOptions {
  Progress progress;
  // Asked before each part; true ends the move with CANCELLED.
  std::function<bool()> stopped;
};

// Likewise: the session and the server that has it now.
absl::StatusOr<FoundSession> SendSession(Client& source, const std::string& session_id,
                                         Client& target, const SendOptions& options);

// Whether `held`, which another server has, takes the place of `left`: the same session, and not
// behind it.
bool TakesThePlace(const v1::Session& held, const v1::Session& left);

}  // namespace attnd::client
