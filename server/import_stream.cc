// The reactor of ImportSession.
#include "server/import_stream.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "server/session_header.h"
#include "server/status_map.h"
#include "server/unary_call.h"
#include "server/wire.h"

namespace attnd::server {
namespace {

// Of a message's data, written between two batches: a message of 256 MiB would hold up the steps of
// others for a third of a second.
constexpr size_t kPartBytes = size_t{1} << 20;

// What an import brings at least on average, the time that its client is waited for: it holds pages
// that nobody can evict.
constexpr int64_t kLeastBytesPerSecond = 32 << 10;

}  // namespace

ImportStream::ImportStream(ServiceContext& service, grpc::CallbackServerContext* context,
                           v1::Session* response)
    : service_(service),
      context_(context),
      response_(response),
      span_(service, context, Method::kImportSession),
      lease_(service.clock, std::min(kPeerLeaseNs, service.config.idle_ttl_ns),
             [this] { return EndIdle(); }) {
  service_.streams.Add(this);
  const absl::StatusOr<Caller> caller = MakeCaller(service_, *context_);
  absl::Status status = caller.status();
  if (status.ok()) {
    tenant_ = caller->tenant;
    status = service_.admission.AdmitWork();
  }
  if (!status.ok()) {
    Finished(status);
    return;
  }
  ReadNext();
}

void ImportStream::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closing_ = true;
  if (lease_.waiting()) {
    End(MakeRetryableError(Reason::kDraining, "the server is stopping", 1000));
  }
}

void ImportStream::ReadNext() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closing_) {
    End(MakeRetryableError(Reason::kDraining, "the server is stopping", 1000));
  }
  if (!finished_) {
    // The time since then counts until so much of the data has come, or all.
    const int64_t received = import_ == nullptr ? 0 : import_->received();
    const int64_t least = lease_.ns() / 1'000'000 * kLeastBytesPerSecond / 1000;
    if (import_ != nullptr &&
        (received - renewed_bytes_ >= least || received == import_->bytes())) {
      renewed_bytes_ = received;
      lease_.Renew();
    }
    lease_.Wait();
    // Not Clear(), which keeps the memory: a client that stalls would hold its last message.
    request_ = v1::ImportSessionRequest();
    charge_ = ByteCharge();
    StartRead(&request_);
  }
}

void ImportStream::OnReadDone(bool ok) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    lease_.Moved();
    if (finished_) {
      return;
    }
  }
  const absl::Status status = Guarded([&]() -> absl::Status {
    if (!ok) {
      return Complete();
    }
    return Handle();
  });
  if (!status.ok()) {
    Finished(status);
  }
}

absl::Status ImportStream::Handle() {
  absl::StatusOr<ByteCharge> charge =
      service_.budget.Charge(static_cast<int64_t>(request_.SpaceUsedLong()));
  if (!charge.ok()) {
    return charge.status();
  }
  charge_ = *std::move(charge);
  const bool first = import_ == nullptr;
  if (first) {
    if (absl::Status status = Begin(); !status.ok()) {
      return status;
    }
  } else if (request_.chunk().has_header() || digest_right_) {
    return MakeError(Reason::kFormatMismatch,
                     digest_right_ ? "a chunk came after the digest; expected none"
                                   : "chunk.header came again; expected in the first chunk alone");
  }
  if (!request_.chunk().data().empty()) {
    return TakeData();
  }
  if (!first && request_.chunk().digest().empty()) {
    return MakeError(Reason::kFormatMismatch,
                     "a chunk after the first has 0 bytes of data and of digest; expected either");
  }
  return CheckDigest();
}

absl::Status ImportStream::Begin() {
  if (!request_.chunk().has_header()) {
    return MakeError(Reason::kFormatMismatch, "the first chunk has no header");
  }
  const v1::SessionHeader& header = request_.chunk().header();
  absl::StatusOr<SnapshotState> state = ReadHeader(service_.model, header);
  if (!state.ok()) {
    return state.status();
  }
  state->spec.tenant = tenant_;
  if (!request_.session_id().empty()) {
    state->spec.id = request_.session_id();
  }
  absl::StatusOr<std::unique_ptr<SnapshotImport>> import = service_.engine->BeginImport(*state);
  if (!import.ok()) {
    return import.status();
  }
  if ((*import)->bytes() != header.data_bytes()) {
    return MakeError(Reason::kFormatMismatch,
                     absl::StrCat("header.data_bytes is ", header.data_bytes(), "; expected ",
                                  (*import)->bytes(), " for layers of these lengths"));
  }
  import_ = *std::move(import);
  digest_.Add(header.SerializeAsString());
  return absl::OkStatus();
}

absl::Status ImportStream::TakeData() {
  const auto bytes = static_cast<int64_t>(request_.chunk().data().size());
  if (bytes > import_->bytes() - import_->received()) {
    return MakeError(Reason::kFormatMismatch,
                     absl::StrCat("chunk.data has ", bytes, " bytes; expected at most ",
                                  import_->bytes() - import_->received(),
                                  ", what is missing of header.data_bytes"));
  }
  written_bytes_ = 0;
  return PostPart();
}

absl::Status ImportStream::PostPart() {
  const bool posted = service_.engine->Post([this](kernels::Backend* backend) {
    if (const absl::Status status = Guarded([&] { return WritePart(backend); }); !status.ok()) {
      Finished(status);
    }
  });
  return posted ? absl::OkStatus()
                : MakeRetryableError(Reason::kDraining, "the server is stopping", 1000);
}

absl::Status ImportStream::WritePart(kernels::Backend* backend) {
  const std::string_view left =
      std::string_view(request_.chunk().data()).substr(static_cast<size_t>(written_bytes_));
  const std::string_view part = left.substr(0, kPartBytes);
  import_->Write(part, backend);
  digest_.Add(part);
  written_bytes_ += static_cast<int64_t>(part.size());
  return part.size() < left.size() ? PostPart() : CheckDigest();
}

absl::Status ImportStream::CheckDigest() {
  const std::string& digest = request_.chunk().digest();
  if (!digest.empty()) {
    if (import_->received() < import_->bytes()) {
      return Truncated();
    }
    if (digest != digest_.Bytes()) {
      return MakeError(Reason::kBadDigest,
                       "chunk.digest is not that of the header and the data: they were damaged");
    }
    digest_right_ = true;
  }
  ReadNext();
  return absl::OkStatus();
}

absl::Status ImportStream::Truncated() const {
  return MakeError(Reason::kTruncated,
                   absl::StrCat("the data ends after ",
                                import_ == nullptr ? 0 : import_->received(), " bytes; expected ",
                                import_ == nullptr ? 0 : import_->bytes(), " and a digest"));
}

absl::Status ImportStream::Complete() {
  if (!digest_right_ || context_->IsCancelled()) {
    return Truncated();
  }
  const absl::StatusOr<SessionInfo> info = import_->Publish();
  if (info.ok()) {
    WriteSession(*info, response_);
    Finished(absl::OkStatus());
  }
  return info.status();
}

void ImportStream::Finished(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  End(status);
}

void ImportStream::End(const absl::Status& status) {
  if (finished_) {
    return;
  }
  finished_ = true;
  import_.reset();  // before the client learns of the end: its pages are free again
  span_.Ended(status);
  Finish(ToGrpcStatus(status));
}

bool ImportStream::EndIdle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (finished_) {
    return true;
  }
  if (lease_.waiting()) {
    End(MakeError(
        Reason::kTruncated,
        absl::StrCat("the client was waited for ", lease_.ns() / 1'000'000, " ms for fewer than ",
                     kLeastBytesPerSecond, " bytes of data a second: the import ends")));
  }
  return finished_;
}

void ImportStream::OnDone() {
  service_.streams.Remove(this);
  {
    // Whoever called Finish() may still hold the lock.
    const std::lock_guard<std::mutex> lock(mutex_);
  }
  delete this;
}

}  // namespace attnd::server
