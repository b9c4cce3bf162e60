// How long a stream waits for its peer's next move: so that one that stalls holds no memory.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "core/clock.h"

namespace attnd::server {

// Between two moves. A client that goes on at all is faster; one that is gone is otherwise noticed
// by its keepalive only after 80 s.
inline constexpr int64_t kPeerLeaseNs = 30'000'000'000;

class PeerLease {
 public:
  // `ended` is called, on a thread of gRPC's, when the peer has been waited for during `ns`, all
  // waits since Renew() together, and is waited for still; it
  // returns false where the peer has just moved after all, and the wait begins anew.
  PeerLease(const Clock& clock, int64_t ns, std::function<bool()> ended);
  // Afterwards `ended` is not called, nor running.
  ~PeerLease();
  PeerLease(const PeerLease&) = delete;
  PeerLease& operator=(const PeerLease&) = delete;

  int64_t ns() const { return ns_; }
  void Wait();   // for the peer, from now on
  void Moved();  // it did
  void Renew();  // what it did was enough: waits before now do not count
  bool waiting() const;

 private:
  struct Shared;
  static void Arm(const std::shared_ptr<Shared>& shared, int64_t ns);

  const int64_t ns_;
  const std::shared_ptr<Shared> shared_;  // outlives the lease, whose alarm may go off late
};

}  // namespace attnd::server
