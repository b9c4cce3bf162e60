// A line on stderr for each request whose caller records its trace: what it was, how it ended and
// where its time went. The lines are written by a thread of their own: whoever ends a request, the
// engine's thread among them, never waits for stderr.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "core/step.h"
#include "grpcpp/support/server_callback.h"
#include "server/log.h"
#include "server/methods.h"
#include "server/trace_parent.h"

namespace attnd::server {

// What the engine did for a request.
struct StepRun {
  StepKind kind = StepKind::kPrefill;
  int64_t layer = 0;
  int64_t sequences = 0;
  int64_t failed = 0;  // of the sequences
  int64_t rows = 0;
  StepTiming timing;
};

struct RequestRecord {
  std::shared_ptr<const TraceParent> parent;
  Method method = Method::kPrefill;
  absl::StatusCode code = absl::StatusCode::kOk;
  const char* reason = "";  // empty when OK
  int64_t total_ns = 0;     // from the request's arrival until its answer was handed to gRPC
  std::optional<StepRun> run;
  std::optional<uint64_t> step_id;  // of a step on Steps
  std::optional<int64_t> steps;     // of a Steps stream as a whole
};

// The fields of a record's line.
Log::Fields RequestFields(const RequestRecord& record);

class RequestLog {
 public:
  // `log` outlives it. Off, it takes nothing.
  RequestLog(const Log& log, bool on);
  ~RequestLog();
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  bool on() const { return on_; }
  // Any thread. What comes faster than stderr takes it is dropped, and a line says how many were.
  void Add(RequestRecord record);
  // Returns when all that was added before has been written.
  void Flush();

 private:
  void Loop();

  const Log& log_;
  const bool on_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RequestRecord> waiting_;
  int64_t dropped_ = 0;
  bool writing_ = false;
  bool stop_ = false;
  std::thread thread_;
};

// A request's part in it: nothing, for those that are not to be logged. Copies are of the same
// trace: a stream's steps each have one.
class RequestTrace {
 public:
  RequestTrace() = default;
  // Of the call's metadata: it is logged if it has one valid `traceparent` with the sampled flag.
  RequestTrace(RequestLog& log, const grpc::CallbackServerContext& context);

  // The engine has let go of the request's step.
  void Ran(const Step& step);
  // The request has ended, for which Ran() was called before if a step ran.
  void Ended(Method method, const absl::Status& status, int64_t total_ns,
             std::optional<uint64_t> step_id = std::nullopt) const;
  // The stream has ended, with so many steps.
  void StreamEnded(const absl::Status& status, int64_t total_ns, int64_t steps) const;

 private:
  RequestRecord Record(Method method, const absl::Status& status, int64_t total_ns) const;

  RequestLog* log_ = nullptr;
  std::shared_ptr<const TraceParent> parent_;  // null: not to be logged
  std::optional<StepRun> run_;
};

}  // namespace attnd::server
