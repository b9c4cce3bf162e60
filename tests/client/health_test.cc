// grpc.health.v1, whose messages the client encodes by hand, against gRPC's own service.
#include <gtest/gtest.h>

#include "tests/client/fake_server.h"

namespace attnd::client {
namespace {

TEST(CheckHealth, ReadsWhatGrpcsOwnServiceSays) {
  FakeServer server;
  const auto client = server.Connect();
  const absl::StatusOr<Health> overall = client->CheckHealth();
  ASSERT_TRUE(overall.ok()) << overall.status();
  EXPECT_EQ(*overall, Health::kServing);
  const absl::StatusOr<Health> other = client->CheckHealth("no.such.Service");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(*other, Health::kUnknownService);
}

TEST(CheckHealth, SaysWhenTheServerIsOutOfService) {
  FakeServer server;
  const auto client = server.Connect();
  server.SetServing(false);
  const absl::StatusOr<Health> overall = client->CheckHealth();
  ASSERT_TRUE(overall.ok()) << overall.status();
  EXPECT_EQ(*overall, Health::kNotServing);
}

}  // namespace
}  // namespace attnd::client
