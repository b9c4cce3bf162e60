// A deadline for streams: not of the whole, which may take as long as it has bytes, but of each
// wait for the other side.
#pragma once

#include <grpcpp/client_context.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/status/status.h"

namespace attnd::client {

class SilenceGuard {
 public:
  // Takes the call's own deadline away, and cancels it when a wait takes longer than `limit`.
  SilenceGuard(grpc::ClientContext* context, std::chrono::milliseconds limit);
  ~SilenceGuard();
  SilenceGuard(const SilenceGuard&) = delete;
  SilenceGuard& operator=(const SilenceGuard&) = delete;

  // Returns wait(), a call that blocks until the other side has done something.
  template <typename Wait>
  auto Watch(const Wait& wait) {
    Arm(std::chrono::steady_clock::now() + limit_);
    auto result = wait();
    Arm(std::nullopt);
    return result;
  }

  // DEADLINE_EXCEEDED instead of `status` when the guard cancelled the call.
  absl::Status Explain(const absl::Status& status) const;

 private:
  void Arm(std::optional<std::chrono::steady_clock::time_point> until);
  void Run();

  grpc::ClientContext* const context_;
  const std::chrono::milliseconds limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::chrono::steady_clock::time_point> until_;
  bool ended_ = false;
  bool fired_ = false;
  std::thread thread_;
};

}  // namespace attnd::client
