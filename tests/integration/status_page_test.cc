// The status page's two documents on a real server: /, and what it shows beside /metrics.
#include "tests/integration/http_get.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

using testing::HasSubstr;
using testing::Not;

class StatusPageTest : public TinyServerTest {
 protected:
  HttpAnswer Status() { return HttpGet(server_.http(), "/status.json"); }
};

TEST_F(StatusPageTest, ThePageIsWholeAndAllowsNothingElse) {
  const HttpAnswer page = HttpGet(server_.http(), "/");
  ASSERT_EQ(page.status, 200);
  EXPECT_THAT(page.head, HasSubstr("Content-Type: text/html; charset=utf-8"));
  EXPECT_THAT(page.head, HasSubstr("Content-Security-Policy: default-src 'none'; script-src "
                                   "'nonce-"));
  EXPECT_THAT(page.head, HasSubstr("X-Content-Type-Options: nosniff"));
  EXPECT_THAT(page.head, HasSubstr("Cache-Control: no-store"));
  EXPECT_THAT(page.body, HasSubstr("<!doctype html>"));
  EXPECT_THAT(page.body, HasSubstr("</html>"));
  EXPECT_THAT(page.body, Not(HasSubstr("@SCRIPT@")));
}

TEST_F(StatusPageTest, SessionsAreShownWithTheLengthsOfTheirLayers) {
  const std::string session = wire_.Create();
  wire_.Prefill(session, kTinyLocal, 0, TinyRows(1, 9));
  wire_.Prefill(session, kTinyGlobal, 0, TinyRows(1, 4));
  ASSERT_TRUE(WaitUntil([&] {
    return Status().body.find("\"id\":\"" + session +
                              "\",\"affinity_key\":\"\",\"lengths\":"
                              "[9,0,0,0,0,4]") != std::string::npos;
  })) << Status().body;
  const HttpAnswer status = Status();
  EXPECT_THAT(status.head, HasSubstr("Content-Type: application/json"));
  EXPECT_THAT(status.head, HasSubstr("Cache-Control: no-store"));
  EXPECT_THAT(status.body, HasSubstr("\"state\":\"ready\""));
  EXPECT_THAT(status.body, HasSubstr("\"layers\":\"LLLLLG\",\"local\":{\"window\":64,"));
  EXPECT_THAT(status.body,
              HasSubstr("{\"name\":\"kv_cache_bytes\",\"value\":\"64MiB\",\"given\":true}"));
}

TEST_F(StatusPageTest, IsOfBoundedSizeAndHoldsUpNobody) {
  for (int i = 0; i < 3000; ++i) {
    wire_.Create();
  }
  const std::string session = wire_.Create();
  ASSERT_TRUE(WaitUntil([&] { return Status().body.find(session) != std::string::npos; }));
  EXPECT_LT(Status().body.size(), size_t{64} << 10);
  for (int i = 0; i < 50; ++i) {
    Status();
    wire_.Decode(kTinyLocal, {{session, i}}, TinyRows(2, 1));
  }
}

TEST(StatusPageWithTokensTest, NamesNoSessionAndNoSecret) {
  const TempDir dir;
  const std::string tokens = dir.Write("tokens", "acme swordfish\n");
  ReadyServer server(TinyFlags({"--auth_tokens_file=" + tokens}));
  Wire wire(server.grpc());
  grpc::ClientContext context;
  Prepare(&context);
  context.AddMetadata("authorization", "Bearer swordfish");
  v1::CreateSessionRequest request;
  request.set_session_id("a-secret-session");
  request.set_affinity_key("worker-1");
  v1::Session created;
  ASSERT_TRUE(wire.sessions().CreateSession(&context, request, &created).ok());
  const std::string status = HttpGet(server.http(), "/status.json").body;
  EXPECT_THAT(status, HasSubstr("\"named\":false"));
  EXPECT_THAT(status, HasSubstr("\"lengths\":[0,0,0,0,0,0]"));
  EXPECT_THAT(status,
              HasSubstr("{\"name\":\"auth_tokens_file\",\"value\":\"set\",\"given\":true}"));
  for (const std::string& secret : {std::string("a-secret-session"), std::string("acme"),
                                    std::string("swordfish"), std::string("worker-1"), tokens}) {
    EXPECT_THAT(status, Not(HasSubstr(secret)));
  }
}

TEST(StatusPageOfAnEndTest, SaysThatTheServerDrains) {
  ReadyServer server(TinyFlags({"--drain_seconds=20"}));
  Wire wire(server.grpc());
  grpc::ClientContext context;
  Prepare(&context);
  v1::DrainResponse response;
  ASSERT_TRUE(wire.admin().Drain(&context, {}, &response).ok());
  EXPECT_THAT(HttpGet(server.http(), "/status.json").body, HasSubstr("\"state\":\"draining\""));
  EXPECT_EQ(HttpGet(server.http(), "/").status, 200);
}

}  // namespace
}  // namespace attnd
