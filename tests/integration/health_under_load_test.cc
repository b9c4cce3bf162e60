// Probes are answered while the engine computes.
#include <algorithm>

#include "tests/integration/http_get.h"
#include "tests/integration/long_prefill.h"
#include "tests/integration/percentile.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

TEST(HealthUnderLoadTest, CheckAnswersDuringAMaximalPrefill) {
  TempDir dir;
  std::vector<std::string> flags = SlowModelFlags(dir);
  flags.push_back("--threads=2");
  flags.push_back("--prefill_chunk_rows=512");  // the default
  ReadyServer server(flags);
  Wire wire(server.grpc());
  LongPrefill prefill(wire, wire.Create(), kSlowMaxLength);
  ASSERT_TRUE(WaitRunning(wire));
  Wire probe(server.grpc());
  std::vector<double> times;
  for (int i = 0; i < 300; ++i) {
    Wire::Health health;
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(probe.CheckHealth("", &health).ok());
    times.push_back(Seconds(std::chrono::steady_clock::now() - start).count());
    EXPECT_EQ(health, Wire::Health::kServing);
    Pause(Seconds(0.003));
  }
  EXPECT_EQ(HttpGet(server.http(), "/readyz").status, 200);
  ASSERT_FALSE(prefill.done());
  std::printf("health during a prefill: p50 %.1f ms, p99 %.1f ms of %zu\n",
              1e3 * Percentile(times, 50), 1e3 * Percentile(times, 99), times.size());
  EXPECT_LT(Percentile(times, 99), 0.050);
}

}  // namespace
}  // namespace attnd
