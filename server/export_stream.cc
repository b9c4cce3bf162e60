// The reactor of ExportSession.
#include "server/export_stream.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "server/build_step.h"
#include "server/session_header.h"
#include "server/status_map.h"
#include "server/unary_call.h"

namespace attnd::server {

ExportStream::ExportStream(ServiceContext& service, grpc::CallbackServerContext* context,
                           const v1::ExportSessionRequest& request)
    : service_(service),
      context_(context),
      span_(service, context, Method::kExportSession),
      chunk_bytes_(std::min(kSessionChunkBytes, service.config.max_message_bytes / 2)),
      lease_(service.clock, std::min(kPeerLeaseNs, service.config.idle_ttl_ns), [this] {
        context_->TryCancel();
        return true;
      }) {
  if (const absl::Status status = Guarded([&] { return Start(request); }); !status.ok()) {
    End(status);
  }
}

absl::Status ExportStream::Start(const v1::ExportSessionRequest& request) {
  absl::StatusOr<Caller> caller = MakeCaller(service_, *context_);
  if (!caller.ok()) {
    return caller.status();
  }
  caller->cancelled = cancelled_;
  // A server that takes no new work any more still hands over what it has.
  if (absl::Status status = service_.admission.AdmitRead(); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::unique_ptr<Step>> step =
      BuildOperation(service_, *caller, request.session_id(),
                     [this, move = request.move()](const std::shared_ptr<Session>& session) {
                       return Take(session, move);
                     });
  if (!step.ok()) {
    return step.status();
  }
  (*step)->done = [this](std::unique_ptr<Step> done) {
    span_.Ran(*done);
    const absl::Status outcome = Guarded([&] {
      absl::Status status = done->Outcome();
      done.reset();
      return status.ok() ? MakeHeader() : status;
    });
    outcome.ok() ? Send() : End(outcome);
  };
  return Submit(service_, *std::move(step));
}

absl::Status ExportStream::Take(const std::shared_ptr<Session>& session, bool move) {
  absl::StatusOr<std::unique_ptr<Snapshot>> snapshot = service_.engine->TakeSnapshot(session, move);
  if (!snapshot.ok()) {
    return snapshot.status();
  }
  snapshot_ = *std::move(snapshot);
  absl::StatusOr<ByteCharge> charge =
      service_.budget.Charge(2 * std::min(chunk_bytes_, snapshot_->bytes()));
  if (!charge.ok()) {
    return charge.status();
  }
  charge_ = *std::move(charge);
  return absl::OkStatus();
}

absl::Status ExportStream::MakeHeader() {
  const v1::SessionHeader header =
      WriteHeader(service_.model, snapshot_->state(), snapshot_->bytes());
  digest_.Add(header.SerializeAsString());
  *response_.mutable_chunk()->mutable_header() = header;
  return absl::OkStatus();
}

void ExportStream::SendNext() {
  const bool posted = service_.engine->Post([this](kernels::Backend* backend) {
    const absl::Status status = Guarded([&] {
      std::string* data = response_.mutable_chunk()->mutable_data();
      *data = snapshot_->Read(chunk_bytes_, backend);
      sent_bytes_ += static_cast<int64_t>(data->size());
      digest_.Add(*data);
      return absl::OkStatus();
    });
    status.ok() ? Send() : End(status);
  });
  if (!posted) {
    End(MakeRetryableError(Reason::kDraining, "the server is stopping", 1000));
  }
}

void ExportStream::SendDigest() {
  all_sent_ = true;
  response_.mutable_chunk()->set_digest(digest_.Bytes());
  Send();
}

void ExportStream::Send() {
  lease_.Wait();
  StartWrite(&response_);
}

void ExportStream::OnWriteDone(bool ok) {
  lease_.Moved();
  lease_.Renew();
  response_.Clear();
  if (!ok || cancelled_->load()) {
    End(MakeError(Reason::kStepCancelled, "the export was cancelled"));
  } else if (all_sent_) {
    sent_move_ = snapshot_->SetSent();
    End(absl::OkStatus());
  } else if (sent_bytes_ < snapshot_->bytes()) {
    SendNext();
  } else {
    SendDigest();
  }
}

void ExportStream::End(const absl::Status& status) {
  // Before the client learns of the end: the session takes steps again, or its move can be closed
  // or begun anew.
  snapshot_.reset();
  span_.Ended(status);
  lease_.Wait();
  Finish(ToGrpcStatus(status));
}

void ExportStream::OnCancel() {
  cancelled_->store(true);
  if (service_.admission.AdmitRead().ok()) {
    service_.engine->Poke();
  }
}

void ExportStream::OnDone() {
  // The call ended before its status was sent. What breaks behind that nobody tells a server.
  if (context_->IsCancelled()) {
    sent_move_.TakeBack(service_.clock.Now());
  }
  delete this;
}

}  // namespace attnd::server
