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
// holds must not be taken for the session when calls reach it again.
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

namespace attnd::client {

struct ReplayOptions {
  // Past so many bytes of rows (4 * d_model bytes a row and layer) they are let go, and a loss is
  // the caller's. 0: no limit.
  int64_t max_history_bytes = 0;
  // What one call has to get over a loss; then its last error is returned.
  std::chrono::milliseconds recovery_timeout{120'000};
};

// Used by one thread at a time, like a Session. A call that failed left nothing behind: the next
// one takes its place.
class ReplayingSession {
 public:
  static absl::StatusOr<std::unique_ptr<ReplayingSession>> Create(
      Client& client, const CreateOptions& create, const ReplayOptions& options = {});

  // Of the session that the server has now.
  const std::string& id() const { return session_->id(); }
  // The position of the layer's next row.
  int64_t length(int64_t layer) const { return session_->length(layer); }
  int64_t history_bytes() const { return history_.bytes(); }
  // Whether a loss can be mended: false once the rows were more than max_history_bytes.
  bool replayable() const { return history_.complete(); }

  // As those of Session.
  absl::StatusOr<PrefillResult> Prefill(int64_t layer, std::span<const float> hidden,
                                        const PrefillOptions& options = {});
  absl::StatusOr<std::vector<float>> Decode(int64_t layer, std::span<const float> hidden);
  absl::Status Rewind(int64_t position);
  // 0 where the session is lost.
  absl::StatusOr<int64_t> Close();

 private:
  class Attempts;

  ReplayingSession(std::shared_ptr<Connection> connection, CreateOptions create,
                   const ReplayOptions& options, std::unique_ptr<Session> session);

  // Sends the rows that the server's session lacks, once it is found or made anew.
  absl::Status Rebuild(bool find, Attempts* attempts);
  absl::Status Find();
  absl::Status MakeAnew();
  absl::Status Take(absl::StatusOr<std::unique_ptr<Session>> session);
  // Frees what an earlier loss left on the server to which calls go now.
  void CloseLeftBehind();
  absl::Status Replay();
  // Mends what `status` says, so that the call can be repeated; the status when that is of no use.
  absl::Status Mend(const absl::Status& status, Attempts* attempts);

  Client client_;               // waits for moves, and less than others for what may not come
  const CreateOptions create_;  // with the caller's id or none
  const ReplayOptions options_;
  std::unique_ptr<Session> session_;
  std::string made_id_;                   // under which it was made last, or perhaps made
  std::vector<std::string> left_behind_;  // where calls do not go now
  History history_;
};

}  // namespace attnd::client
