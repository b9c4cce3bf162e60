// Prefill and Decode steps in flight on one stream: what a generation loop uses to hide the
// round trip, several micro-batches at a time. Steps of one session run in the order submitted.
//
// Thread-safe. Positions are the caller's: the stream keeps no session state and repeats
// nothing. When it breaks, every unanswered step fails with the stream's status and its fate is
// unknown: open a new stream and repeat each with `rewind` (proto/README.md, Positions).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace attnd::client {

struct PrefillStep {
  std::string session_id;
  int64_t layer = 0;
  int64_t position = 0;  // absolute position of the first row
  bool rewind = false;
  int64_t expected_length = 0;  // > 0: guards a repeated step
  OutputRows output_rows = OutputRows::kAll;
  std::vector<float> hidden;  // [n, d_model]
};

struct DecodeStep {
  struct Sequence {
    std::string session_id;
    int64_t position = 0;
    int64_t num_tokens = 1;
    bool rewind = false;
    int64_t expected_length = 0;
  };
  int64_t layer = 0;
  std::vector<Sequence> sequences;  // each session at most once
  std::vector<float> hidden;        // [sum of num_tokens, d_model]
};

struct StepResult {
  absl::Status status;  // of the whole step
  // A Prefill's: position of output's first row. Responses marked `more` are joined.
  int64_t output_position = 0;
  std::vector<absl::Status> sequences;  // a Decode's, one a sequence
  std::vector<float> output;            // [m, d_model]
  Timing timing;
};

struct StreamOptions {
  // Unanswered steps at a time; Submit waits for room. The server reads 64 by default.
  int max_in_flight = 64;
  // The server's deadline of each step, from its acceptance. 0: none.
  std::chrono::milliseconds step_timeout{60'000};
};

class StepStream {
 public:
  // Called once, on a thread of gRPC's: must not block, nor Submit to a full stream.
  using Done = std::function<void(StepResult)>;

  static absl::StatusOr<std::unique_ptr<StepStream>> Open(Client& client,
                                                          const StreamOptions& options = {});
  // Cancels what is unanswered, answers it with CANCELLED, and waits for that.
  ~StepStream();

  // Sends a step; `done` gets its answer. Returns the step's id, for Cancel.
  uint64_t Submit(const PrefillStep& step, Done done);
  uint64_t Submit(const DecodeStep& step, Done done);
  // Likewise, with a future.
  std::future<StepResult> Submit(const PrefillStep& step);
  std::future<StepResult> Submit(const DecodeStep& step);

  // Asks the server to give a step up; it is answered all the same.
  void Cancel(uint64_t step_id);

  // No more steps: waits until all are answered and returns the stream's status.
  absl::Status Finish();

 private:
  class Reactor;
  StepStream(std::shared_ptr<Connection> connection, int64_t d_model, const StreamOptions& options);

  std::unique_ptr<Reactor> reactor_;
};

}  // namespace attnd::client
