// What Export and Import pass on: a session in parts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "attnd/v1/attnd.pb.h"

namespace attnd::client {

// Told after each part: bytes of the session's rows that have passed, of how many.
using Progress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

// Takes the parts of an export in order; an error ends the export with it.
using ChunkSink = std::function<absl::Status(const v1::SessionChunk& chunk)>;

// Yields the parts of an import in order: false when there are no more.
using ChunkSource = std::function<absl::StatusOr<bool>(v1::SessionChunk* chunk)>;

struct ExportOptions {
  // From now on the session's steps are refused with SESSION_MOVING, until it is closed. They are
  // served again when the export fails, and after Client::CancelMove.
  bool move = false;
  Progress progress;
  // Not null: set to the server that answered (attnd-server), or to "".
  std::string* server = nullptr;
};

struct ImportOptions {
  std::string session_id;  // empty: that of the exported session
  Progress progress;
};

}  // namespace attnd::client
