// Keeps gRPC's callback threads awake.
#include "server/idle_heartbeat.h"

#include <chrono>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace attnd::server {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(250);
constexpr auto kCallTimeout = std::chrono::seconds(5);

// The state of one call; lives until its callback.
struct Beat {
  grpc::ClientContext context;
  grpc::ByteBuffer request;  // an empty message: the overall health
  grpc::ByteBuffer response;
  bool done = false;
};

}  // namespace

IdleHeartbeat::IdleHeartbeat(grpc::Server& server)
    : channel_(server.InProcessChannel(grpc::ChannelArguments())), thread_([this] { Loop(); }) {}

IdleHeartbeat::~IdleHeartbeat() { Stop(); }

void IdleHeartbeat::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
  channel_.reset();
}

void IdleHeartbeat::Loop() {
  grpc::GenericStub stub(channel_);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    Beat beat;
    const grpc::Slice empty;
    beat.request = grpc::ByteBuffer(&empty, 1);
    beat.context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    stub.UnaryCall(&beat.context, "/grpc.health.v1.Health/Check", {}, &beat.request, &beat.response,
                   [this, &beat](const grpc::Status&) {
                     const std::lock_guard<std::mutex> guard(mutex_);
                     beat.done = true;
                     wake_.notify_all();
                   });
    wake_.wait(lock, [&] { return beat.done; });
    wake_.wait_for(lock, kInterval, [this] { return stop_; });
  }
}

}  // namespace attnd::server
