// Fills a server with sessions that each hold some rows in every layer, and prints, as JSON, how
// many bytes of pages they take and when they expire. The caller looks at the server itself.
//
//   bench_sessions HOST:PORT SESSIONS ROWS [TTL_SECONDS]
//
// With a TTL the sessions are kept alive while they are filled, and touched all at once at the end:
// nothing of them expires earlier, and then all do within the time of a few steps.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/step_stream.h"
#include "nlohmann/json.hpp"
#include "tests/bench/kernel_cases.h"
#include "tests/bench/must.h"

namespace attnd::bench {
namespace {

using Clock = std::chrono::steady_clock;
// A repeated row is written into a page of its own until its step is done: few at a time.
constexpr size_t kTouchedInOneStep = 64;

class Filling {
 public:
  Filling(const std::string& target, int64_t rows, std::chrono::milliseconds ttl)
      : client_(Must(client::Client::Connect(target))),
        d_model_(Must(client_->Model()).d_model()),
        rows_(rows),
        ttl_(ttl),
        hidden_(Values(rows * d_model_, 1)) {}

  void Fill(int64_t sessions) {
    client::CreateOptions create;
    create.idle_ttl = ttl_;
    client::PrefillOptions no_answer;
    no_answer.output_rows = client::OutputRows::kNone;
    for (int64_t i = 0; i < sessions; ++i) {
      std::unique_ptr<client::Session> session = Must(client_->CreateSession(create));
      for (int64_t layer = 0; layer < session->num_layers(); ++layer) {
        Must(session->Prefill(layer, hidden_, no_answer));
      }
      ids_.push_back(session->id());
      if (ttl_.count() > 0 && Clock::now() - touched_ > ttl_ / 3) {
        Touch();
      }
    }
    if (ttl_.count() > 0) {
      Touch();
    }
  }

  nlohmann::json Report() {
    const v1::Stats stats = Must(client_->Stats());
    const std::set<std::string> own(ids_.begin(), ids_.end());
    int64_t first = INT64_MAX, last = 0;
    for (const v1::Session& session : Must(client_->ListSessions())) {
      if (!own.contains(session.session_id())) {
        continue;
      }
      const auto& expiry = session.expire_time();
      const int64_t ns = expiry.seconds() * 1'000'000'000 + expiry.nanos();
      first = std::min(first, ns);
      last = std::max(last, ns);
    }
    return {{"sessions", stats.sessions()},
            {"used_bytes", stats.kv_cache_used_bytes()},
            {"first_expiry", static_cast<double>(first) * 1e-9},
            {"last_expiry", static_cast<double>(last) * 1e-9}};
  }

 private:
  // Repeats the last row of every session's first layer: in the end no page more is taken.
  void Touch() {
    const auto stream = Must(client::StepStream::Open(*client_));
    for (size_t begin = 0; begin < ids_.size(); begin += kTouchedInOneStep) {
      client::DecodeStep step;
      for (size_t i = begin; i < std::min(begin + kTouchedInOneStep, ids_.size()); ++i) {
        step.sequences.push_back({ids_[i], rows_ - 1, 1, /*rewind=*/true, 0});
      }
      step.hidden = Values(static_cast<int64_t>(step.sequences.size()) * d_model_, 2);
      const client::StepResult result = stream->Submit(step).get();
      Must(result.status);
      for (const absl::Status& status : result.sequences) {
        Must(status);
      }
    }
    touched_ = Clock::now();
  }

  const std::unique_ptr<client::Client> client_;
  const int64_t d_model_;
  const int64_t rows_;
  const std::chrono::milliseconds ttl_;  // 0: the server's default
  const std::vector<float> hidden_;
  std::vector<std::string> ids_;
  Clock::time_point touched_ = Clock::now();
};

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::fputs("Usage: bench_sessions HOST:PORT SESSIONS ROWS [TTL_SECONDS]\n", stderr);
    return 2;
  }
  const std::chrono::seconds ttl(argc == 5 ? std::atoll(argv[4]) : 0);
  attnd::bench::Filling filling(argv[1], std::atoll(argv[3]), ttl);
  filling.Fill(std::atoll(argv[2]));
  std::puts(filling.Report().dump().c_str());
  return 0;
}
