// Keeps gRPC's callback threads awake.
//
// gRPC 1.51 runs all callbacks on a few threads, each of which sleeps for up to 100 ms once a
// second has passed without an event: the first call after a silence then took 67 to 80 ms (p90).
// A trivial call through the in-process channel every 250 ms keeps it at 3 ms and costs 0.4 % of
// a CPU. A grpc::Alarm would not help: it fires on other threads.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "grpcpp/channel.h"
#include "grpcpp/server.h"

namespace attnd::server {

class IdleHeartbeat {
 public:
  explicit IdleHeartbeat(grpc::Server& server);
  ~IdleHeartbeat();  // stops
  void Stop();       // before the server shuts down

 private:
  void Loop();

  std::shared_ptr<grpc::Channel> channel_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace attnd::server
