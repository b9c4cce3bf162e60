// The HTTP side.
#include "server/http.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "server/listen_address.h"

namespace attnd::server {
namespace {

class HttpTest : public ::testing::Test {
 protected:
  HttpHandlers Handlers() {
    return {[] { return std::string("a_metric 1\n"); }, [this] { return ready_; },
            [] { return std::string(R"({"state":"ready"})"); }};
  }
  bool ready_ = false;
};

TEST_F(HttpTest, Routes) {
  auto http = HttpServer::Start("127.0.0.1:0", Handlers());
  ASSERT_TRUE(http.ok()) << http.status();
  const auto address = ParseHostPort("http", (*http)->address());
  ASSERT_TRUE(address.ok());
  EXPECT_GT(address->port, 0);
  httplib::Client client(address->host, address->port);
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/readyz")->status, 503);
  ready_ = true;
  EXPECT_EQ(client.Get("/readyz")->status, 200);
  EXPECT_EQ(client.Get("/metrics")->body, "a_metric 1\n");
  EXPECT_THAT(client.Get("/metrics")->get_header_value("Content-Type"),
              ::testing::HasSubstr("version=0.0.4"));
  EXPECT_EQ(client.Get("/status.json")->body, R"({"state":"ready"})");
  EXPECT_EQ(client.Get("/status.json")->get_header_value("Content-Type"), "application/json");
  EXPECT_THAT(client.Get("/")->body, ::testing::HasSubstr("<title>attnd</title>"));
  EXPECT_EQ(client.Get("/nothing")->status, 404);
}

TEST_F(HttpTest, NothingIsStoredOrGuessed) {
  auto http = HttpServer::Start("127.0.0.1:0", Handlers());
  ASSERT_TRUE(http.ok());
  const auto address = ParseHostPort("http", (*http)->address());
  httplib::Client client(address->host, address->port);
  for (const char* path : {"/", "/status.json", "/metrics", "/readyz", "/nothing"}) {
    const auto answer = client.Get(path);
    ASSERT_TRUE(answer) << path;
    EXPECT_EQ(answer->get_header_value("Cache-Control"), "no-store") << path;
    EXPECT_EQ(answer->get_header_value("X-Content-Type-Options"), "nosniff") << path;
  }
}

TEST_F(HttpTest, ThePagesOwnScriptRunsAlone) {
  auto http = HttpServer::Start("127.0.0.1:0", Handlers());
  ASSERT_TRUE(http.ok());
  const auto address = ParseHostPort("http", (*http)->address());
  httplib::Client client(address->host, address->port);
  std::string before;
  for (int i = 0; i < 2; ++i) {
    const auto answer = client.Get("/");
    const std::string policy = answer->get_header_value("Content-Security-Policy");
    EXPECT_THAT(policy, ::testing::StartsWith("default-src 'none'; "));
    EXPECT_THAT(policy, ::testing::Not(::testing::HasSubstr("unsafe")));
    const size_t begin = policy.find("script-src 'nonce-") + 18;
    const std::string nonce = policy.substr(begin, policy.find('\'', begin) - begin);
    EXPECT_EQ(nonce.size(), 32U);
    EXPECT_NE(nonce, before) << "an answer's is of no use for another";
    before = nonce;
    EXPECT_THAT(answer->body, ::testing::HasSubstr("<script nonce=\"" + nonce + "\">"));
    EXPECT_THAT(answer->body, ::testing::HasSubstr("<style nonce=\"" + nonce + "\">"));
    EXPECT_THAT(answer->body, ::testing::Not(::testing::HasSubstr("NONCE")));
    // Nothing of it comes from elsewhere.
    for (const char* reference : {"src=\"http", "href=\"http", "url(", "@import", "//cdn"}) {
      EXPECT_EQ(answer->body.find(reference), std::string::npos) << reference;
    }
  }
}

TEST_F(HttpTest, PagesThatStayConnectedDoNotKeepProbesWaiting) {
  auto http = HttpServer::Start("127.0.0.1:0", Handlers());
  ASSERT_TRUE(http.ok());
  const auto address = ParseHostPort("http", (*http)->address());
  std::vector<std::unique_ptr<httplib::Client>> pages;
  for (int i = 0; i < 16; ++i) {
    pages.push_back(std::make_unique<httplib::Client>(address->host, address->port));
    pages.back()->set_keep_alive(true);
    ASSERT_TRUE(pages.back()->Get("/status.json"));
  }
  httplib::Client probe(address->host, address->port);
  probe.set_read_timeout(1);
  EXPECT_TRUE(probe.Get("/healthz"));
}

TEST_F(HttpTest, APortInUseIsRefused) {
  auto first = HttpServer::Start("127.0.0.1:0", Handlers());
  ASSERT_TRUE(first.ok());
  const auto second = HttpServer::Start((*first)->address(), Handlers());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              ::testing::HasSubstr("--http=" + (*first)->address() + ": cannot be bound"));
}

TEST_F(HttpTest, AStoppedServersPortIsFree) {
  auto first = HttpServer::Start("127.0.0.1:0", Handlers());
  ASSERT_TRUE(first.ok());
  const std::string address = (*first)->address();
  first->reset();
  EXPECT_TRUE(HttpServer::Start(address, Handlers()).ok());
}

}  // namespace
}  // namespace attnd::server
