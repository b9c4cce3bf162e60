#include "client/cpp/silence_guard.h"

#include <string>

namespace attnd::client {

SilenceGuard::SilenceGuard(grpc::ClientContext* context, std::chrono::milliseconds limit)
    : context_(context), limit_(limit) {
  context->set_deadline(std::chrono::system_clock::time_point::max());
  thread_ = std::thread([this] { Run(); });
}

SilenceGuard::~SilenceGuard() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void SilenceGuard::Arm(std::optional<std::chrono::steady_clock::time_point> until) {
  std::lock_guard<std::mutex> lock(mutex_);
  until_ = until;
  changed_.notify_all();
}

void SilenceGuard::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ended_) {
    if (!until_.has_value()) {
      changed_.wait(lock);
    } else if (std::chrono::steady_clock::now() < *until_) {
      const auto until = *until_;
      changed_.wait_until(lock, until);
    } else {
      fired_ = true;
      until_.reset();
      context_->TryCancel();
    }
  }
}

absl::Status SilenceGuard::Explain(const absl::Status& status) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return fired_ && !status.ok()
             ? absl::DeadlineExceededError("nothing came from the server for " +
                                           std::to_string(limit_.count()) + " ms")
             : status;
}

}  // namespace attnd::client
