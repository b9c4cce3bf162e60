// Forks, exports and imports over the wire, and a model whose sessions are too large for the
// buffers between server and client.
#pragma once

#include <string>
#include <vector>

#include "tests/integration/wire_client.h"

namespace attnd {

// The flags of a server of two layers, the first local, the second global, whose hidden rows are
// narrow and whose latents are wide: little to send, much to keep.
std::vector<std::string> WideModelFlags(const TempDir& dir,
                                        const std::vector<std::string>& more = {});
inline constexpr int64_t kWideWidth = 16;
inline constexpr int64_t kWideWindow = 100;
inline constexpr uint32_t kWideLayers = 2;

// Rows of that model.
v1::Tensor WideRows(uint64_t seed, int64_t rows);

// The fork's id goes to `*fork`.
Outcome Fork(Wire& wire, const std::string& session, int64_t position, std::string* fork);

// An ExportSession stream.
class ExportCall {
 public:
  ExportCall(Wire& wire, const std::string& session, bool move = false);
  ~ExportCall();
  ExportCall(const ExportCall&) = delete;
  ExportCall& operator=(const ExportCall&) = delete;

  // The next chunk goes to chunks(); false at the end.
  bool Read();
  // Reads the rest.
  Outcome Finish();
  const std::vector<v1::SessionChunk>& chunks() const { return chunks_; }
  std::string Data() const;  // of all chunks so far

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::ExportSessionResponse>> stream_;
  std::vector<v1::SessionChunk> chunks_;
  bool finished_ = false;
};

// An ImportSession stream.
class ImportCall {
 public:
  // Under `id`, or where that is empty under the exported one.
  ImportCall(Wire& wire, const std::string& id);
  ~ImportCall();
  ImportCall(const ImportCall&) = delete;
  ImportCall& operator=(const ImportCall&) = delete;

  bool Write(const v1::SessionChunk& chunk);
  Outcome Finish();
  const v1::Session& session() const { return session_; }

 private:
  grpc::ClientContext context_;
  const std::string id_;
  v1::Session session_;
  std::unique_ptr<grpc::ClientWriter<v1::ImportSessionRequest>> stream_;
  bool first_ = true;
  bool finished_ = false;
};

// Imports all chunks.
Outcome Import(Wire& wire, const std::string& id, const std::vector<v1::SessionChunk>& chunks);

}  // namespace attnd
