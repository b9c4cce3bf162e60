// Idle connections that ping as often as the server allows, every 5 s, are not punished.
#include "tests/integration/tcp_relay.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

constexpr int64_t kPingBytes = 17;  // a frame

class KeepaliveTest : public testing::Test {
 protected:
  // Connects, then is idle for so long while the channel pings. Looking at the channel's state
  // has its answers read. True when the connection was lost.
  bool Lost(int ping_ms, double seconds) {
    wire_ = std::make_unique<Wire>(
        relay_.address(), std::map<std::string, int>{{GRPC_ARG_KEEPALIVE_TIME_MS, ping_ms},
                                                     {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
                                                     {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0}});
    wire_->Create();
    const int64_t before = relay_.bytes_to_server();
    const auto end = std::chrono::system_clock::now() +
                     std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds(seconds));
    const bool lost = wire_->channel()->WaitForStateChange(GRPC_CHANNEL_READY, end);
    pings_ = (relay_.bytes_to_server() - before) / kPingBytes;
    return lost;
  }

  ReadyServer server_{TinyFlags()};
  TcpRelay relay_{server_.grpc()};
  std::unique_ptr<Wire> wire_;
  int64_t pings_ = 0;
};

// gRPC breaks a connection at the third ping that comes too soon.
TEST_F(KeepaliveTest, AnIdleChannelThatPingsStaysUp) {
  EXPECT_FALSE(Lost(5'100, 22));
  EXPECT_GE(pings_, 4);
  EXPECT_EQ(wire_->Prefill(wire_->Create(), kTinyLocal, 0, TinyRows(1, 1)).size(), 64u);
  EXPECT_EQ(relay_.connections(), 1) << "still the same connection";
}

TEST_F(KeepaliveTest, OneThatPingsEverySecondDoesNot) {
  EXPECT_TRUE(Lost(1'000, 20));
  EXPECT_EQ(wire_->Prefill(wire_->Create(), kTinyLocal, 0, TinyRows(1, 1)).size(), 64u);
  EXPECT_EQ(relay_.connections(), 2) << "it connects again";
}

}  // namespace
}  // namespace attnd
