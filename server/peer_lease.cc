#include "server/peer_lease.h"

#include <chrono>
#include <mutex>
#include <utility>

#include "grpcpp/alarm.h"

namespace attnd::server {

struct PeerLease::Shared {
  Shared(const Clock& c, int64_t n, std::function<bool()> e)
      : clock(c), ns(n), ended(std::move(e)) {}

  const Clock& clock;
  const int64_t ns;
  std::atomic<MonotonicNs> since{0};  // 0: the peer is not waited for
  std::atomic<int64_t> before{0};     // waited for it until then, since Renew()
  std::mutex mutex;                   // of the rest, and held while `ended` runs
  std::function<bool()> ended;        // null when the lease is gone
  std::unique_ptr<grpc::Alarm> alarm;
};

PeerLease::PeerLease(const Clock& clock, int64_t ns, std::function<bool()> ended)
    : ns_(ns), shared_(std::make_shared<Shared>(clock, ns, std::move(ended))) {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  Arm(shared_, ns_);
}

PeerLease::~PeerLease() {
  std::unique_ptr<grpc::Alarm> alarm;
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->ended = nullptr;
  alarm = std::move(shared_->alarm);  // cancelled: its callback, if it comes, finds nothing
}

void PeerLease::Wait() { shared_->since = shared_->clock.Now(); }
void PeerLease::Moved() {
  if (const MonotonicNs since = shared_->since.exchange(0); since > 0) {
    shared_->before += shared_->clock.Now() - since;
  }
}
void PeerLease::Renew() { shared_->before = 0; }
bool PeerLease::waiting() const { return shared_->since > 0; }

void PeerLease::Arm(const std::shared_ptr<Shared>& shared, int64_t ns) {
  shared->alarm = std::make_unique<grpc::Alarm>();
  shared->alarm->Set(std::chrono::system_clock::now() + std::chrono::nanoseconds(ns),
                     [shared](bool ok) {
                       const std::lock_guard<std::mutex> lock(shared->mutex);
                       if (!ok || shared->ended == nullptr) {
                         return;
                       }
                       // In this order: a wait goes over from the second to the first, and must
                       // not count twice.
                       const int64_t before = shared->before;
                       const MonotonicNs since = shared->since;
                       const int64_t waited = since > 0 ? shared->clock.Now() - since + before : 0;
                       if (waited < shared->ns || !shared->ended()) {
                         Arm(shared, waited < shared->ns ? shared->ns - waited : shared->ns);
                       }
                     });
}

}  // namespace attnd::server
