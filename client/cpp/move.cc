#include "client/cpp/move.h"

#include "client/cpp/import_stream.h"

namespace attnd::client {
namespace {

absl::Status WithNote(const absl::Status& status, const std::string& note) {
  Error error = ErrorOf(status);
  error.message += note;
  return ToStatus(error);
}

// What came of an import whose last answer was `finished`: an answer that was lost may have been
// a good one.
absl::StatusOr<v1::Session> Arrived(Client& target, const std::string& session_id,
                                    const absl::StatusOr<v1::Session>& finished) {
  if (finished.ok() || ErrorOf(finished.status()).no_effect()) {
    return finished;
  }
  const auto found = target.AttachSession(session_id);
  if (!found.ok()) {
    return finished;
  }
  return (*found)->Refresh();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> MoveSession(Client& source, const std::string& session_id,
                                                     Client& target, const Progress& progress) {
  absl::StatusOr<v1::Session> arrived = absl::UnknownError("not asked yet");
  {
    ImportStream import(target.connection(), {});
    const ExportOptions options{true, progress};
    const absl::Status exported = source.ExportSession(
        session_id, options, [&](const v1::SessionChunk& chunk) { return import.Write(chunk); });
    if (!exported.ok()) {
      return exported;
    }
    arrived = Arrived(target, session_id, import.Finish());
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
  return target.Open(*arrived);
}

}  // namespace attnd::client
