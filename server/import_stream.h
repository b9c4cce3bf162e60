// The reactor of ImportSession: takes the pages that the header asks for, fills them as chunks
// come, and lets the session be found when the digest was right and the client has closed its side.
// Ends by itself when too little comes for a while, so that a client that stalls holds no memory.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "attnd/v1/attnd.grpc.pb.h"
#include "core/digest.h"
#include "core/snapshot_import.h"
#include "server/call_span.h"
#include "server/peer_lease.h"
#include "server/service_context.h"
#include "server/stream_registry.h"

namespace attnd::server {

class ImportStream final : public grpc::ServerReadReactor<v1::ImportSessionRequest>,
                           public ClosableStream {
 public:
  ImportStream(ServiceContext& service, grpc::CallbackServerContext* context,
               v1::Session* response);

  // The server stops.
  void Close() override;

 private:
  void OnReadDone(bool ok) override;
  void OnCancel() override {}  // the read under way fails
  void OnDone() override;

  // Waits for the client's next message, if the call goes on.
  void ReadNext();
  // Ends the call, once: with the lock held, or taking it.
  void End(const absl::Status& status);
  void Finished(const absl::Status& status);
  // A message has come. When it has data, the engine's thread goes on with it.
  absl::Status Handle();
  absl::Status Begin();
  absl::Status TakeData();
  // Has the engine's thread write the next part of the message's data, and so on to its end.
  absl::Status PostPart();
  absl::Status WritePart(kernels::Backend* backend);
  // After a message's data: its digest, if it has one; and on to the next.
  absl::Status CheckDigest();
  // The client has closed its side, or is gone.
  absl::Status Complete();
  absl::Status Truncated() const;
  // Whether the call ends because no message came.
  bool EndIdle();

  ServiceContext& service_;
  grpc::CallbackServerContext* const context_;
  v1::Session* const response_;
  CallSpan span_;
  std::string tenant_;
  std::unique_ptr<SnapshotImport> import_;
  Digest digest_;
  bool digest_right_ = false;
  v1::ImportSessionRequest request_;
  ByteCharge charge_;          // for request_
  int64_t written_bytes_ = 0;  // of request_'s data
  int64_t renewed_bytes_ = 0;  // received when the lease was renewed

  std::mutex mutex_;
  bool closing_ = false;
  bool finished_ = false;
  PeerLease lease_;  // last, for it may call until it is gone
};

}  // namespace attnd::server
