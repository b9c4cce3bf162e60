// Idle connections that ping as often as the server allows are not punished.
#include "tests/integration/tcp_relay.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

// A ping is a frame of 17 bytes; gRPC closes a connection at the third that comes too soon.
TEST(KeepaliveTest, AnIdleChannelThatPingsStaysUp) {
  ReadyServer server(TinyFlags());
  TcpRelay relay(server.grpc());
  Wire wire(relay.address(), {{GRPC_ARG_KEEPALIVE_TIME_MS, 5'100},
                              {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
                              {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0}});
  const std::string session = wire.Create();
  const int64_t before = relay.bytes_to_server();
  ASSERT_TRUE(WaitUntil([&] { return relay.bytes_to_server() - before >= 4 * 17; }, Seconds(40)))
      << "four pings were sent";
  Pause(Seconds(0.3));
  EXPECT_EQ(relay.connections(), 1);
  EXPECT_EQ(wire.Prefill(session, kTinyLocal, 0, TinyRows(1, 1)).size(), 64u);
  EXPECT_EQ(relay.connections(), 1) << "still the same connection";
}

}  // namespace
}  // namespace attnd
