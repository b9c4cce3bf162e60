// A session on its way into a server, part by part.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "client/cpp/chunk_check.h"
#include "client/cpp/connection.h"
#include "client/cpp/silence_guard.h"
#include "client/cpp/transfer.h"

namespace attnd::client {

class ImportStream {
 public:
  ImportStream(std::shared_ptr<Connection> connection, const ImportOptions& options);
  // Without a Finish before it the server forgets what it was sent.
  ~ImportStream();

  // Sends the next part; opens the stream with the first. An error is the call's end.
  absl::Status Write(v1::SessionChunk chunk);
  // No more parts come: the session as the server has it now. An error without a reason (error.h)
  // leaves open whether it has it.
  absl::StatusOr<v1::Session> Finish();
  // That answered, once the call has ended (attnd-server); empty: none did.
  const std::string& server() const { return server_; }

 private:
  absl::Status Open(const v1::SessionHeader& header);
  absl::Status End();

  const std::shared_ptr<Connection> connection_;
  const ImportOptions options_;
  ChunkCheck check_;
  grpc::ClientContext context_;
  std::optional<SilenceGuard> guard_;
  v1::Session session_;
  std::string server_;
  std::unique_ptr<grpc::ClientWriter<v1::ImportSessionRequest>> writer_;  // null once ended
  absl::Status status_;                                                   // the call's, if bad
};

}  // namespace attnd::client
