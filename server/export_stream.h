// The reactor of ExportSession: takes a snapshot when the session's turn comes, and sends it in
// chunks, one under way at a time, so that a slow reader costs one chunk of memory, which is
// charged to the budget of bytes in flight. One that reads nothing for a while is cancelled, so
// that it holds neither pages nor a session that moves. A move whose status gRPC knows
// not to have sent is taken back; what is lost later only the client sees, who then cancels it.
#pragma once

#include <atomic>
#include <memory>

#include "attnd/v1/attnd.grpc.pb.h"
#include "core/digest.h"
#include "core/snapshot.h"
#include "server/call_span.h"
#include "server/peer_lease.h"
#include "server/service_context.h"

namespace attnd::server {

// Bytes of data in a message: below the 4 MiB that clients take by default. Half of
// --max_message_bytes where that is less.
inline constexpr int64_t kSessionChunkBytes = int64_t{1} << 20;

class ExportStream final : public grpc::ServerWriteReactor<v1::ExportSessionResponse> {
 public:
  ExportStream(ServiceContext& service, grpc::CallbackServerContext* context,
               const v1::ExportSessionRequest& request);

 private:
  absl::Status Start(const v1::ExportSessionRequest& request);
  absl::Status Take(const std::shared_ptr<Session>& session, bool move);
  absl::Status MakeHeader();
  // Reads the next chunk on the engine's thread; it is sent from there.
  void SendNext();
  void SendDigest();
  // Writes response_.
  void Send();
  void End(const absl::Status& status);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  ServiceContext& service_;
  grpc::CallbackServerContext* const context_;
  CallSpan span_;
  const int64_t chunk_bytes_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  // One of the engine's thread and gRPC's is at work at a time, from here on.
  std::unique_ptr<Snapshot> snapshot_;
  SentMove sent_move_;
  ByteCharge charge_;  // for response_ and what gRPC makes of it
  Digest digest_;
  v1::ExportSessionResponse response_;
  int64_t sent_bytes_ = 0;
  bool all_sent_ = false;
  PeerLease lease_;  // last, for it may call until it is gone
};

}  // namespace attnd::server
