// Whether the parts of a session are whole: the order of header, data and digest, the number of
// bytes that the header promises, and the digest.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "attnd/v1/attnd.pb.h"

namespace attnd::client {

class ChunkCheck {
 public:
  ChunkCheck();
  ~ChunkCheck();
  ChunkCheck(const ChunkCheck&) = delete;
  ChunkCheck& operator=(const ChunkCheck&) = delete;

  // The next part. DATA_LOSS: BAD_DIGEST where bytes are others than those exported, TRUNCATED
  // where some are missing.
  absl::Status Add(const v1::SessionChunk& chunk);
  // No more parts come.
  absl::Status Finish() const;

  int64_t done_bytes() const { return done_bytes_; }
  int64_t total_bytes() const { return total_bytes_; }

 private:
  struct Digest;

  absl::Status AddHeader(const v1::SessionHeader& header);
  absl::Status CheckDigest(const std::string& digest);

  std::unique_ptr<Digest> digest_;
  int64_t chunks_ = 0;
  int64_t done_bytes_ = 0;   // of data
  int64_t total_bytes_ = 0;  // as the header says
  bool complete_ = false;    // the digest has come, and is right
};

}  // namespace attnd::client
