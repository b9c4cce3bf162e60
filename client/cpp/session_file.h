// An exported session as a file: the 8 bytes "ATTNDS1\n", then each SessionChunk as it came, with
// its length in bytes before it (4 bytes, little-endian). The last one has the digest, so that
// a file tells by itself whether it is whole. The Python client reads and writes the same.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace attnd::client {

// Writes the session's file, readable by its owner alone, for it holds what was said. The path is
// replaced when all is written and verified, and untouched before. The bytes of data written.
absl::StatusOr<int64_t> ExportToFile(Client& client, const std::string& session_id,
                                     const std::string& path, const ExportOptions& options = {});

// Makes a session from a file. INVALID_ARGUMENT when it is no session's file, DATA_LOSS
// with BAD_DIGEST or TRUNCATED when it is damaged or cut; else as Client::ImportSession.
absl::StatusOr<std::unique_ptr<Session>> ImportFromFile(Client& client, const std::string& path,
                                                        const ImportOptions& options = {});

class SessionFileWriter {
 public:
  // Begins a file beside `path`, under a name of its own.
  static absl::StatusOr<std::unique_ptr<SessionFileWriter>> Create(const std::string& path);
  // Removes what was not committed.
  ~SessionFileWriter();

  absl::Status Append(const v1::SessionChunk& chunk);
  // Makes what was appended durable, and puts it at the path.
  absl::Status Commit();

 private:
  SessionFileWriter(const std::string& path, const std::string& draft, std::FILE* file)
      : path_(path), draft_(draft), file_(file) {}

  const std::string path_;
  const std::string draft_;  // the name until Commit
  std::FILE* file_;          // null once committed
};

class SessionFileReader {
 public:
  static absl::StatusOr<std::unique_ptr<SessionFileReader>> Open(const std::string& path);
  ~SessionFileReader();

  // A ChunkSource.
  absl::StatusOr<bool> Next(v1::SessionChunk* chunk);

 private:
  SessionFileReader(const std::string& path, std::FILE* file) : path_(path), file_(file) {}

  const std::string path_;
  std::FILE* const file_;
  int64_t offset_ = 0;  // bytes read
};

}  // namespace attnd::client
