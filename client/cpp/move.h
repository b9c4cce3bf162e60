// Moving a session from one server to another while its client waits.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace attnd::client {

// Streams the session from `source` to `target` and closes it there; its steps meanwhile wait
// (SESSION_MOVING, which this library's clients repeat). On failure it is served at `source` as
// before, and the error says so where it is not. The session, as `target` has it.
absl::StatusOr<std::unique_ptr<Session>> MoveSession(Client& source, const std::string& session_id,
                                                     Client& target, const Progress& progress = {});

}  // namespace attnd::client
