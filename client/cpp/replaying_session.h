// A session that outlives its server: it keeps the rows that it sent, and sends them again
// elsewhere.
//
//   auto session = attnd::client::ReplayingSession::Create(*client, {});
//   auto answer = (*session)->Decode(0, row);  // a pause when the server has died meanwhile
//
// When the session is gone (its server died, or it expired or was evicted there) it is created
// under the same affinity key where the client's calls go now, its rows are sent again, and the
// call is repeated: with the same answers, bit for bit where the new server computes like the old
// one. Made anew it has another id: the server may have been out of reach alone, and what it still
// holds must not be taken for the session when calls reach it again. It is closed once they do,
// unless its id is the caller's: another client may have a session of that name by then.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/history.h"
#include "client/cpp/session.h"
#include "client/cpp/session_maker.h"

namespace attnd::client {

struct ReplayOptions {
  // Past so many bytes of rows (4 * d_model bytes a row and layer) they are let go, and a loss is
  // the caller's. 0: no limit.
  int64_t max_history_bytes = 0;
  // What one call has to get over a loss; then its last error is returned.
  std::chrono::milliseconds recovery_timeout{120'000};
};

// Used by one thread at a time, like a Session. A call that failed left nothing behind, but for the
// earlier parts of a long Prefill: the next one takes its place, from length() on.
class ReplayingSession {
 public:
  // Repeated for recovery_timeout where the server is gone or going, and with
  // RetryOptions::wait_when_advised where it advises to come back. SESSION_EXISTS is the caller's:
  // what exists may be another client's. A try that was not answered may have made the session
  // under the caller's id; the next one is under an id of its own.
  static absl::StatusOr<std::unique_ptr<ReplayingSession>> Create(
      Client& client, const CreateOptions& create, const ReplayOptions& options = {});

  // Of the session that the server has now. Another one once it was made anew: the caller's, cut
  // to 95 characters, with a random ending; or a random one.
  const std::string& id() const { return session_->id(); }
  // The position of the layer's next row.
  int64_t length(int64_t layer) const { return session_->length(layer); }
  int64_t history_bytes() const { return history_.bytes(); }
  // Whether a loss can be mended: false once the rows were more than max_history_bytes.
  bool replayable() const { return history_.complete(); }

  // As those of Session. Where one fails in the middle of a recovery the session is as long as
  // before, and the next one begins another recovery.
  absl::StatusOr<PrefillResult> Prefill(int64_t layer, std::span<const float> hidden,
                                        const PrefillOptions& options = {});
  absl::StatusOr<std::vector<float>> Decode(int64_t layer, std::span<const float> hidden);
  absl::Status Rewind(int64_t position);
  // Ends the session, and what earlier losses left where calls go now; the bytes that the session
  // freed, 0 where it is lost or on a server to which calls do not go. It is not made anew any
  // more.
  absl::StatusOr<int64_t> Close();

 private:
  class Attempts;

  ReplayingSession(const std::shared_ptr<Connection>& connection, SessionMaker maker,
                   const ReplayOptions& options, std::unique_ptr<Session> session);

  // Mends what `status` says, so that the call can be repeated; the status when that is of no use.
  absl::Status Mend(const absl::Status& status, Attempts* attempts);
  // Makes the session anew, or finds it. `session_` is what it was until another one is complete.
  absl::Status Recover(bool find, Attempts* attempts);
  // One try, which goes on with what the one before made in part.
  absl::Status TryToRecover(bool find, std::unique_ptr<Session>* candidate);
  // Whether the session that calls find now is as long as it was left.
  absl::StatusOr<bool> IsWhereItWas();
  // Sends the rows that the candidate lacks.
  absl::Status Replay(Session* candidate) const;
  // Session::Rewind, refused where what was cut was not the session.
  absl::Status CutTo(int64_t position);
  // Rows that the history lacks are those of a step that failed: the layer's next step cuts them.
  void DoubtWhatIsNotKept();

  Client client_;  // waits for moves, and less than others for what may not come
  SessionMaker maker_;
  const ReplayOptions options_;
  std::unique_ptr<Session> session_;
  bool closed_ = false;
  History history_;  // while it is complete, what the session is, whatever a server says
};

}  // namespace attnd::client
