#include "client/cpp/chunk_check.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <xxhash.h>

#include <string>

#include "client/cpp/error.h"
#include "kernels/check.h"

namespace attnd::client {
namespace {

absl::Status Damaged(const std::string& message) {
  return ToStatus({absl::StatusCode::kDataLoss, "BAD_DIGEST", message, std::nullopt});
}

// The same fields give the same bytes as the server's own: the message has no maps.
std::string Serialized(const v1::SessionHeader& header) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    header.SerializeToCodedStream(&coded);
  }
  return bytes;
}

}  // namespace

struct ChunkCheck::Digest {
  Digest() : state(XXH3_createState()) {
    Check(state != nullptr, "memory for a digest of 600 bytes");
    XXH3_128bits_reset(state);
  }
  ~Digest() { XXH3_freeState(state); }
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void Add(const std::string& bytes) { XXH3_128bits_update(state, bytes.data(), bytes.size()); }
  // 16 bytes, the most significant first.
  std::string Canonical() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    return std::string(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest));
  }

  XXH3_state_t* state;
};

ChunkCheck::ChunkCheck() : digest_(std::make_unique<Digest>()) {}
ChunkCheck::~ChunkCheck() = default;

absl::Status ChunkCheck::AddHeader(const v1::SessionHeader& header) {
  if (header.data_bytes() < 0) {
    return Damaged("header.data_bytes: " + std::to_string(header.data_bytes()) +
                   "; expected 0 or more");
  }
  total_bytes_ = header.data_bytes();
  digest_->Add(Serialized(header));
  return absl::OkStatus();
}

absl::Status ChunkCheck::CheckDigest(const std::string& digest) {
  if (done_bytes_ < total_bytes_) {
    return Finish();
  }
  if (digest != digest_->Canonical()) {
    return Damaged("digest: another than that of the header and the " +
                   std::to_string(done_bytes_) + " bytes of data");
  }
  complete_ = true;
  return absl::OkStatus();
}

absl::Status ChunkCheck::Add(const v1::SessionChunk& chunk) {
  const std::string place = "part " + std::to_string(chunks_);
  if (complete_) {
    return Damaged(place + ": comes after the digest; expected nothing");
  }
  if (chunk.has_header() != (chunks_ == 0)) {
    return Damaged(place + (chunks_ == 0 ? ": no header" : ": a header") +
                   "; expected one in the first part alone");
  }
  ++chunks_;
  if (chunk.has_header()) {
    if (absl::Status status = AddHeader(chunk.header()); !status.ok()) {
      return status;
    }
  }
  const int64_t bytes = static_cast<int64_t>(chunk.data().size());
  if (bytes > total_bytes_ - done_bytes_) {
    return Damaged(place + ": more data than the " + std::to_string(total_bytes_) +
                   " bytes that the header promises");
  }
  done_bytes_ += bytes;
  digest_->Add(chunk.data());
  return chunk.digest().empty() ? absl::OkStatus() : CheckDigest(chunk.digest());
}

absl::Status ChunkCheck::Finish() const {
  if (complete_) {
    return absl::OkStatus();
  }
  const std::string what = chunks_ == 0
                               ? "no header"
                               : std::to_string(done_bytes_) + " of " +
                                     std::to_string(total_bytes_) + " bytes of data and no digest";
  return ToStatus(
      {absl::StatusCode::kDataLoss, "TRUNCATED", "the session ends early: " + what, std::nullopt});
}

}  // namespace attnd::client
