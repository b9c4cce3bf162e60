// The HTTP side.
#include "server/http.h"

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
            [] { return std::string("<h1>attnd</h1>"); }};
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
  EXPECT_EQ(client.Get("/")->body, "<h1>attnd</h1>");
  EXPECT_EQ(client.Get("/nothing")->status, 404);
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
