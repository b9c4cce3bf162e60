// While the model loads: the ports answer, and say that nothing is served yet.
#include "tests/integration/http_get.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

// Weights of about 200 million elements take a while to make.
constexpr char kWideModel[] = R"(model:
  d_model: 4096
  n_layers: 4
  n_heads_q: 32
  n_heads_kv: 8
  d_head: 128
  d_kv_compressed: 512
  d_q_compressed: 1024
  d_head_rope: 64
  max_seq_len: 1024
attention:
  global_layer_freq: 4
  local_window: 128
)";

TEST(WarmUpTest, NotServingUntilReady) {
  TempDir dir;
  const std::string grpc = "127.0.0.1:" + std::to_string(FreePort());
  const std::string http = "127.0.0.1:" + std::to_string(FreePort());
  ServerProcess server({"--model=" + dir.Write("wide.yaml", kWideModel), "--weights=random:1",
                        "--weight_dtype=bf16", "--listen=" + grpc, "--http=" + http,
                        "--kv_cache_bytes=64MiB", "--drain_seconds=0"});
  ASSERT_TRUE(WaitUntil([&] { return HttpGet(http, "/healthz").status == 200; }));
  Wire wire(grpc);
  Wire::Health health;
  const Outcome checked = wire.CheckHealth("", &health);
  ASSERT_TRUE(checked.ok()) << checked;
  ASSERT_EQ(server.ready_line(), "") << "the model is too quick to load for this test";
  EXPECT_EQ(health, Wire::Health::kNotServing);
  EXPECT_TRUE(wire.CheckHealth("attnd.v1.AttentionService", &health).ok());
  EXPECT_EQ(health, Wire::Health::kNotServing);
  EXPECT_EQ(HttpGet(http, "/readyz").status, 503);
  EXPECT_EQ(HttpGet(http, "/metrics").status, 200);
  v1::Session session;
  const Outcome created = wire.Create(v1::CreateSessionRequest(), &session);
  EXPECT_EQ(created.text(), "UNAVAILABLE NOT_READY");
  EXPECT_THAT(created.details, testing::HasSubstr("google.rpc.RetryInfo"));
  v1::PrefillResponse response;
  EXPECT_EQ(wire.Prefill(PrefillOf("x", 0, 0, TinyRows(1, 1)), &response).text(),
            "UNAVAILABLE NOT_READY");
  EXPECT_EQ(wire.Get("x", &session).text(), "UNAVAILABLE NOT_READY");
  {
    StepsCall steps(wire);
    steps.Write(StepOf(1, PrefillOf("x", 0, 0, TinyRows(1, 1))));
    EXPECT_EQ(StatusText(steps.Next().status()), "UNAVAILABLE NOT_READY");
  }
  ASSERT_EQ(server.ready_line(), "") << "the model is too quick to load for this test";

  ASSERT_TRUE(server.WaitReady()) << server.Stderr();
  EXPECT_EQ(server.Ready("grpc"), grpc);
  EXPECT_TRUE(wire.CheckHealth("", &health).ok());
  EXPECT_EQ(health, Wire::Health::kServing);
  EXPECT_EQ(HttpGet(http, "/readyz").status, 200);
  const std::string id = wire.Create();
  EXPECT_EQ(wire.Prefill(id, 0, 0, MakeTensor(RandomRows(1, 1, 4096), 4096)).size(), 4096u);
}

}  // namespace
}  // namespace attnd
