#include "client/cpp/move.h"

#include <algorithm>
#include <utility>

#include "client/cpp/import_stream.h"

namespace attnd::client {
namespace {

absl::Status WithNote(const absl::Status& status, const std::string& note) {
  Error error = ErrorOf(status);
  error.message += note;
  return ToStatus(error);
}

// The session as an export's first part tells of it.
v1::Session SessionOf(const v1::SessionHeader& header) {
  v1::Session session;
  session.set_session_id(header.session_id());
  session.set_affinity_key(header.affinity_key());
  session.set_prefix_length(header.prefix_length());
  *session.mutable_layer_lengths() = header.layer_lengths();
  return session;
}

// Fails unless the session is known to be at another server than the one it left.
absl::Status CheckElsewhere(const std::string& server, const std::string& source_server) {
  if (!source_server.empty() && !server.empty() && server != source_server) {
    return absl::OkStatus();
  }
  const std::string where =
      server.empty() || source_server.empty()
          ? "the answers do not say (attnd-server) that it came to another server"
          : "it was led back to the server that it is at, " + source_server;
  return ToStatus({absl::StatusCode::kFailedPrecondition, "",
                   where + "; it is served there as before", std::nullopt});
}

// A refusal, with the reason for it where the session's own server has refused it.
absl::Status Explained(const absl::Status& refused, const std::string& server,
                       const std::string& source_server) {
  const bool led_back = !server.empty() && server == source_server;
  return led_back ? WithNote(refused, "; it was led back to the server that it is at, " + server)
                  : refused;
}

// Where an import has brought the session `left`. An answer that was lost may have been a good one.
absl::StatusOr<FoundSession> Arrived(Client& target, const v1::Session& left,
                                     const std::string& source_server,
                                     const absl::StatusOr<v1::Session>& finished,
                                     const std::string& import_server) {
  if (finished.ok()) {
    if (absl::Status status = CheckElsewhere(import_server, source_server); !status.ok()) {
      return status;
    }
    return FoundSession{*finished, import_server};
  }
  if (ErrorOf(finished.status()).no_effect()) {
    return Explained(finished.status(), import_server, source_server);
  }
  absl::StatusOr<FoundSession> found = target.FindSession(left.session_id());
  if (!found.ok()) {
    return finished.status();
  }
  if (!TakesThePlace(found->session, left) || !CheckElsewhere(found->server, source_server).ok()) {
    return Explained(finished.status(), found->server, source_server);
  }
  return found;
}

}  // namespace

bool TakesThePlace(const v1::Session& held, const v1::Session& left) {
  return held.affinity_key() == left.affinity_key() &&
         held.prefix_length() == left.prefix_length() &&
         std::equal(left.layer_lengths().begin(), left.layer_lengths().end(),
                    held.layer_lengths().begin(), held.layer_lengths().end(),
                    [](int64_t here, int64_t there) { return here <= there; });
}

absl::StatusOr<FoundSession> SendSession(Client& source, const std::string& session_id,
                                         Client& target, const SendOptions& options) {
  absl::StatusOr<FoundSession> arrived = absl::UnknownError("not asked yet");
  {
    ImportStream import(target.connection(), {});
    v1::Session left;
    std::string source_server;
    const absl::Status exported = source.ExportSession(
        session_id, {true, options.progress, &source_server}, [&](const v1::SessionChunk& chunk) {
          if (options.stopped && options.stopped()) {
            return absl::CancelledError("the move was interrupted");
          }
          if (chunk.has_header()) {
            left = SessionOf(chunk.header());
          }
          return import.Write(chunk);
        });
    if (!exported.ok()) {
      return Explained(exported, import.server(), source_server);
    }
    const absl::StatusOr<v1::Session> finished = import.Finish();
    arrived = Arrived(target, left, source_server, finished, import.server());
  }
  if (!arrived.ok()) {
    if (absl::Status open = source.CancelMove(session_id); !open.ok()) {
      return WithNote(arrived.status(),
                      "; and whether its old place takes steps again is not known: " +
                          std::string(open.message()));
    }
    return arrived.status();
  }
  if (const auto closed = source.CloseSession(session_id); !closed.ok()) {
    return WithNote(closed.status(), "; the session has moved, but its old place still holds it");
  }
  return arrived;
}

absl::StatusOr<std::unique_ptr<Session>> MoveSession(Client& source, const std::string& session_id,
                                                     Client& target, const Progress& progress) {
  const absl::StatusOr<FoundSession> moved =
      SendSession(source, session_id, target, {progress, {}});
  if (!moved.ok()) {
    return moved.status();
  }
  return target.Open(moved->session);
}

}  // namespace attnd::client
