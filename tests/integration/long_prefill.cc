// A prefill that keeps the engine busy.
#include "tests/integration/long_prefill.h"

#include "tests/integration/metrics_text.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr char kSlowModel[] = R"(model:
  d_model: 16
  n_layers: 2
  n_heads_q: 16
  n_heads_kv: 2
  d_head: 64
  d_kv_compressed: 64
  d_q_compressed: 64
  d_head_rope: 32
  max_seq_len: 65536
attention:
  global_layer_freq: 2
  local_window: 100
)";

}  // namespace

std::vector<std::string> SlowModelFlags(const TempDir& dir) {
  return {"--model=" + dir.Write("slow.yaml", kSlowModel), "--weights=random:7", "--threads=1",
          "--prefill_chunk_rows=128"};
}

v1::Tensor SlowRows(uint64_t seed, int64_t rows) {
  return MakeTensor(RandomRows(seed, rows, kSlowWidth), kSlowWidth);
}

LongPrefill::LongPrefill(Wire& wire, const v1::PrefillRequest& request) : request_(request) {
  Prepare(&context_, Seconds(120));
  // The callback owns the promise: this object may be gone before set_value() returns.
  const auto promise = std::make_shared<std::promise<grpc::Status>>();
  future_ = promise->get_future();
  wire.attention().async()->Prefill(
      &context_, &request_, &response_,
      [promise](const grpc::Status& status) { promise->set_value(status); });
}

LongPrefill::LongPrefill(Wire& wire, const std::string& session, int64_t rows)
    : LongPrefill(wire, PrefillOf(session, kSlowLayer, 0, SlowRows(1, rows))) {}

LongPrefill::~LongPrefill() {
  Cancel();
  Wait();
}

bool LongPrefill::done() const {
  return waited_ || future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

const Outcome& LongPrefill::Wait() {
  if (!waited_) {
    outcome_ = OutcomeOf(future_.get(), context_);
    waited_ = true;
  }
  return outcome_;
}

bool WaitRunning(Wire& wire) {
  return WaitUntil([&] { return wire.Stats().running_rows() > 0; });
}

bool WaitQueued(Wire& wire, int64_t steps) {
  return WaitUntil([&] { return wire.Stats().queued_steps() == steps; });
}

bool WaitIdle(const ReadyServer& server) {
  // GetStats would count itself, and between two chunks nothing runs.
  return WaitUntil([&] { return Scrape(server.http()).Get("attnd_inflight_rpcs") == 0; });
}

}  // namespace attnd
