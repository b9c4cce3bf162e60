// Client::ExportSession and CancelMove.
#include <chrono>
#include <thread>
#include <utility>

#include "client/cpp/channel.h"
#include "client/cpp/chunk_check.h"
#include "client/cpp/client.h"
#include "client/cpp/connection.h"
#include "client/cpp/silence_guard.h"
#include "client/cpp/unary.h"

namespace attnd::client {
namespace {

using Reader = grpc::ClientReader<v1::ExportSessionResponse>;

// One stream of ExportSession.
struct ExportRun {
  const ExportOptions& options;
  const ChunkSink& sink;
  ChunkCheck check;
  bool begun = false;    // a part has come: not to be repeated
  absl::Status refused;  // by the check or the sink
};

// Appends to an export's error that its session may still be closed for steps.
absl::Status StillMoving(const absl::Status& failed, const absl::Status& open) {
  Error error = ErrorOf(failed);
  error.message += "; and whether the session takes steps again is not known: ";
  error.message += std::string(open.message());
  return ToStatus(error);
}

// Passes what comes to the sink, until the stream ends or something is wrong.
absl::Status Receive(Reader& reader, SilenceGuard& guard, ExportRun* run) {
  v1::ExportSessionResponse response;
  while (guard.Watch([&] { return reader.Read(&response); })) {
    run->begun = true;
    if (absl::Status status = run->check.Add(response.chunk()); !status.ok()) {
      return status;
    }
    if (absl::Status status = run->sink(response.chunk()); !status.ok()) {
      return status;
    }
    if (run->options.progress) {
      run->options.progress(run->check.done_bytes(), run->check.total_bytes());
    }
  }
  return absl::OkStatus();
}

// Makes the stream end, and waits for that.
grpc::Status End(Reader& reader, SilenceGuard& guard) {
  v1::ExportSessionResponse ignored;
  while (guard.Watch([&] { return reader.Read(&ignored); })) {
  }
  return guard.Watch([&] { return reader.Finish(); });
}

// How often a move is cancelled before its session must be open again, and the pause between.
constexpr int kCancelTries = 50;
constexpr std::chrono::milliseconds kCancelPause{20};

}  // namespace

absl::Status Client::ExportSession(const std::string& session_id, const ExportOptions& options,
                                   const ChunkSink& sink) {
  v1::ExportSessionRequest request;
  request.set_session_id(session_id);
  request.set_move(options.move);
  ExportRun run{options, sink, {}, false, absl::OkStatus()};
  absl::Status ended;  // the stream's status, once it had begun
  CallOutcome call = CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool) {
    SilenceGuard guard(context, connection_->options.deadline);
    const auto reader = connection_->sessions->ExportSession(context, request);
    run.refused = Receive(*reader, guard, &run);
    if (!run.refused.ok()) {
      context->TryCancel();  // opens a session that was to move
    }
    const grpc::Status status =
        run.refused.ok() ? guard.Watch([&] { return reader->Finish(); }) : End(*reader, guard);
    ended = guard.Explain(FromGrpc(status, *context));
    return run.begun || ended.ok() ? grpc::Status::OK : status;
  });
  if (run.refused.ok() && ended.ok()) {
    run.refused = run.check.Finish();
  }
  if (options.server != nullptr) {
    *options.server = std::move(call.server);
  }
  absl::Status failed = run.refused;
  if (failed.ok()) {
    failed = ended.ok() ? call.status : ended;
  }
  // Once a move may have begun the server may wait for its end: it had sent all before a cancel, or
  // the stream broke. A refusal before any part began none, but another's may be under way.
  const bool may_have_begun = run.begun || call.uncertain;
  if (!failed.ok() && options.move && may_have_begun) {
    const absl::Status open = CancelMove(session_id);
    if (!open.ok() && open.code() != absl::StatusCode::kNotFound) {
      return StillMoving(failed, open);
    }
  }
  return failed;
}

// A move whose stream has ended is begun again and cancelled. On the usual channel a small session
// would all have been sent before the cancel arrives, and the move would go on; on a narrow one the
// server stands in the middle of it.
absl::Status Client::CancelMove(const std::string& session_id) {
  const auto channel = OpenNarrowChannel(connection_->target, connection_->options);
  if (!channel.ok()) {
    return channel.status();
  }
  const auto narrow = v1::SessionService::NewStub(*channel);
  v1::ExportSessionRequest again;
  again.set_session_id(session_id);
  again.set_move(true);
  absl::Status status;
  for (int i = 0; i < kCancelTries; ++i) {
    status = ProbeSteps(session_id);
    if (ErrorOf(status).reason != "SESSION_MOVING") {
      return status;
    }
    grpc::ClientContext context;
    Prepare(*connection_, &context);
    SilenceGuard guard(&context, connection_->options.deadline);
    const auto reader = narrow->ExportSession(&context, again);
    guard.Watch([&] {
      reader->WaitForInitialMetadata();  // comes with the first part: the move has begun
      return true;
    });
    context.TryCancel();
    (void)End(*reader, guard);
    std::this_thread::sleep_for(kCancelPause);  // the server hears of it within this, usually
  }
  return status;
}

absl::Status Client::ProbeSteps(const std::string& session_id) {
  const absl::StatusOr<v1::ModelInfo> model = Model();
  if (!model.ok()) {
    return model.status();
  }
  v1::RewindSessionRequest request;
  request.set_session_id(session_id);
  request.set_position(model->max_seq_len());  // no layer is longer
  grpc::ClientContext context;
  Prepare(*connection_, &context);
  v1::Session ignored;
  return FromGrpc(connection_->sessions->RewindSession(&context, request, &ignored), context);
}

}  // namespace attnd::client
