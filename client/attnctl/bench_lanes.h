// The sessions of attnctl bench and what a request does with them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/attnctl/bench_options.h"
#include "client/attnctl/open_loop.h"
#include "client/cpp/client.h"
#include "client/cpp/step_stream.h"

namespace attnd::attnctl {

// One client's stream, opened again once it has ended. Thread-safe.
class BenchStream {
 public:
  explicit BenchStream(client::Client* client) : client_(client) {}
  // Sends the step and waits for its answer.
  client::StepResult Send(const client::DecodeStep& step);

 private:
  absl::StatusOr<std::shared_ptr<client::StepStream>> Current();
  void Drop(const std::shared_ptr<client::StepStream>& stream);

  client::Client* const client_;
  std::mutex mutex_;
  std::shared_ptr<client::StepStream> stream_;
};

class BenchLanes final : public LoadTarget {
 public:
  BenchLanes(const BenchOptions& options, const BenchShape& shape,
             std::vector<std::unique_ptr<client::Client>> clients);

  // Makes all sessions and fills them with the prompt, on many threads. CANCELLED after Stop().
  absl::Status Open();
  // Closes those that there are. Gives up at the first that the server cannot be asked about.
  absl::Status Close();
  // Ends Open(). Any thread.
  void Stop() { stopped_ = true; }
  // Sessions that Open() has made so far.
  int64_t opened() const { return opened_; }

  int lanes() const override { return static_cast<int>(lanes_.size()); }
  absl::Status Send(int lane) override;
  void Restore(int lane, const absl::Status& status) override;

 private:
  struct Lane {
    client::Client* client = nullptr;
    BenchStream* stream = nullptr;
    std::vector<std::unique_ptr<client::Session>> sessions;
    std::vector<bool> lost;  // of each session: the server no longer has it
    int64_t grown = 0;       // rows behind the prompt

    // The first error of a call or of its sessions, whose losses are noted.
    absl::Status Judge(const absl::Status& whole, const std::vector<absl::Status>& parts);
  };

  // Calls `work` for each lane, on `concurrency` threads; the first error ends it.
  absl::Status ForEachLane(const std::function<absl::Status(Lane*)>& work);
  absl::Status OpenLane(Lane* lane);
  absl::StatusOr<std::unique_ptr<client::Session>> OpenSession(client::Client* client);
  absl::Status CloseLane(Lane* lane);
  absl::Status Decode(Lane* lane, int64_t layer);
  absl::Status Step(Lane* lane, int64_t layer);
  absl::Status Prefill(Lane* lane, int64_t layer);
  // Cuts the lane's sessions back; those lost are made anew.
  void CutBack(Lane* lane);

  const BenchOptions options_;
  const BenchShape shape_;
  const std::vector<std::unique_ptr<client::Client>> clients_;
  const std::vector<float> prompt_;  // [prompt, width]
  const std::vector<float> rows_;    // of one Decode, [batch, width]
  const std::string name_;           // what the sessions' ids begin with
  std::vector<std::unique_ptr<BenchStream>> streams_;
  std::vector<Lane> lanes_;
  std::atomic<int64_t> ids_{0};
  std::atomic<int64_t> opened_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace attnd::attnctl
