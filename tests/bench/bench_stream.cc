// Tokens per second of a server through one stream of Steps: 64 sessions of 64 tokens as 4 Decode
// steps of 16, always in flight, on layer 0. Compare with medium_decode/64 of bench_engine.
//
//   bench_stream HOST:PORT [SECONDS]
//
// Prints JSON.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/step_stream.h"
#include "nlohmann/json.hpp"
#include "tests/bench/kernel_cases.h"
#include "tests/bench/must.h"

namespace attnd::bench {
namespace {

constexpr int64_t kHistory = 64;
constexpr size_t kGroups = 4;
constexpr size_t kGroupSessions = 16;

// One group of sessions: its step is sent again as soon as it is answered, until `stop`.
class Load {
 public:
  Load(client::Client& client, int64_t d_model) : stream_(Must(client::StepStream::Open(client))) {
    for (size_t g = 0; g < kGroups; ++g) {
      client::DecodeStep step;
      for (size_t i = 0; i < kGroupSessions; ++i) {
        sessions_.push_back(Must(client.CreateSession({})));
        Must(sessions_.back()->Prefill(0, Values(kHistory * d_model, g * kGroupSessions + i)));
        step.sequences.push_back({sessions_.back()->id(), kHistory, 1, true, 0});
      }
      step.hidden = Values(static_cast<int64_t>(kGroupSessions) * d_model, g);
      steps_.push_back(std::move(step));
    }
  }

  // Tokens answered per second over so long.
  double Rate(double seconds) {
    stop_ = false;
    running_ = kGroups;
    tokens_ = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (size_t g = 0; g < kGroups; ++g) {
      Send(g);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return running_ == 0; });
    stop_ = true;
    idle_.wait(lock, [this] { return running_ == 0; });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return static_cast<double>(tokens_) / took.count();
  }

 private:
  void Send(size_t group) {
    stream_->Submit(steps_[group], [this, group](const client::StepResult& result) {
      if (!result.status.ok()) {
        Fail(result.status);
      }
      tokens_ += kGroupSessions;
      if (!stop_) {
        Send(group);
        return;
      }
      std::lock_guard<std::mutex> lock(mutex_);
      if (--running_ == 0) {
        idle_.notify_all();
      }
    });
  }

  std::vector<std::unique_ptr<client::Session>> sessions_;
  std::vector<client::DecodeStep> steps_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> tokens_{0};
  std::mutex mutex_;
  std::condition_variable idle_;
  size_t running_ = 0;
  std::unique_ptr<client::StepStream> stream_;
};

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fputs("Usage: bench_stream HOST:PORT [SECONDS]\n", stderr);
    return 2;
  }
  const double seconds = argc == 3 ? std::atof(argv[2]) : 1;
  auto client = attnd::bench::Must(attnd::client::Client::Connect(argv[1]));
  attnd::bench::Load load(*client, attnd::bench::Must(client->Model()).d_model());
  load.Rate(0.2);
  const nlohmann::json result = {{"tokens_per_s", load.Rate(seconds)}};
  std::puts(result.dump().c_str());
  return 0;
}
