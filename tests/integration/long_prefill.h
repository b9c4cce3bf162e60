// A prefill that keeps the engine busy for as long as a test needs it to be.
#pragma once

#include <future>
#include <string>
#include <vector>

#include "tests/integration/wire_client.h"

namespace attnd {

// The flags of a server on a model of two layers, the first local, the second global, whose
// hidden rows are narrow and whose heads are many: little to send, much to compute. It works on
// one thread, in chunks of 128 rows.
std::vector<std::string> SlowModelFlags(const TempDir& dir);
inline constexpr int64_t kSlowWidth = 16;
inline constexpr uint32_t kSlowLayer = 1;         // the global one
inline constexpr int64_t kSlowMaxLength = 65536;  // max_seq_len

// Rows of that model.
v1::Tensor SlowRows(uint64_t seed, int64_t rows);

// A call on its own thread of gRPC.
class LongPrefill {
 public:
  LongPrefill(Wire& wire, const v1::PrefillRequest& request);
  // `rows` rows from position 0 on the slow layer; 30,000 take longer than any test.
  LongPrefill(Wire& wire, const std::string& session, int64_t rows = 30'000);
  ~LongPrefill();

  bool done() const;
  void Cancel() { context_.TryCancel(); }
  const Outcome& Wait();
  const v1::PrefillResponse& response() const { return response_; }

 private:
  grpc::ClientContext context_;
  v1::PrefillRequest request_;
  v1::PrefillResponse response_;
  std::future<grpc::Status> future_;
  Outcome outcome_;
  bool waited_ = false;
};

// Waits until the engine has begun to compute; false when it does not within 30 s.
bool WaitRunning(Wire& wire);
// Waits until exactly so many steps are queued.
bool WaitQueued(Wire& wire, int64_t steps);
// Waits until every call and step has been answered, those that nobody waits for included.
bool WaitIdle(const ReadyServer& server);

}  // namespace attnd
