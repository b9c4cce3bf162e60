#include "client/cpp/import_stream.h"

#include <algorithm>
#include <utility>

#include "client/cpp/client.h"
#include "client/cpp/unary.h"

namespace attnd::client {
namespace {

// What metadata may hold.
bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

ImportStream::ImportStream(std::shared_ptr<Connection> connection, const ImportOptions& options)
    : connection_(std::move(connection)), options_(options) {}

ImportStream::~ImportStream() {
  if (writer_ != nullptr) {
    context_.TryCancel();
    (void)End();
  }
}

absl::Status ImportStream::Open(const v1::SessionHeader& header) {
  if (!IsPrintable(header.affinity_key())) {
    // Metadata holds nothing else: no client that may send it could find the session.
    return ToStatus({absl::StatusCode::kInvalidArgument, "BAD_ARGUMENT",
                     "header.affinity_key: expected printable ASCII", std::nullopt});
  }
  PrepareWithKey(
      *connection_,
      header.affinity_key().empty() ? connection_->options.session_key : header.affinity_key(),
      &context_);
  guard_.emplace(&context_, connection_->options.deadline);
  writer_ = connection_->sessions->ImportSession(&context_, &session_);
  return absl::OkStatus();
}

absl::Status ImportStream::End() {
  const grpc::Status status = guard_->Watch([this] { return writer_->Finish(); });
  writer_.reset();
  server_ = ServerOf(context_);
  return guard_->Explain(FromGrpc(status, context_));
}

absl::Status ImportStream::Write(v1::SessionChunk chunk) {
  if (!status_.ok()) {
    return status_;
  }
  status_ = check_.Add(chunk);
  v1::ImportSessionRequest request;
  if (status_.ok() && writer_ == nullptr) {
    status_ = Open(chunk.header());
    request.set_session_id(options_.session_id);
  }
  if (!status_.ok()) {
    return status_;
  }
  request.mutable_chunk()->Swap(&chunk);
  if (!guard_->Watch([&] { return writer_->Write(request); })) {
    status_ = End();
    if (status_.ok()) {
      status_ = absl::InternalError("ImportSession: answered before its last part");
    }
    return status_;
  }
  if (options_.progress) {
    options_.progress(check_.done_bytes(), check_.total_bytes());
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Session> ImportStream::Finish() {
  if (status_.ok()) {
    status_ = check_.Finish();
  }
  if (!status_.ok()) {
    return status_;
  }
  guard_->Watch([this] { return writer_->WritesDone(); });
  status_ = End();
  if (!status_.ok()) {
    return status_;
  }
  return session_;
}

absl::StatusOr<std::unique_ptr<Session>> Client::ImportSession(const ChunkSource& source,
                                                               const ImportOptions& options) {
  ImportStream stream(connection_, options);
  while (true) {
    v1::SessionChunk chunk;
    const absl::StatusOr<bool> more = source(&chunk);
    if (!more.ok()) {
      return more.status();
    }
    if (!*more) {
      break;
    }
    if (absl::Status status = stream.Write(std::move(chunk)); !status.ok()) {
      return status;
    }
  }
  const absl::StatusOr<v1::Session> session = stream.Finish();
  if (!session.ok()) {
    return session.status();
  }
  return Open(*session);
}

}  // namespace attnd::client
