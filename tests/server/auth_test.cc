// Bearer tokens and their tenants.
#include "server/auth.h"

#include "core/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Auth> Read(const std::string& text) {
  TempDir dir;
  return Auth::FromFile(dir.Write("tokens", text));
}

TEST(AuthTest, OffMeansOneTenantForAll) {
  const Auth auth;
  EXPECT_FALSE(auth.on());
  EXPECT_EQ(*auth.Tenant(""), "");
  EXPECT_EQ(*auth.Tenant("Bearer anything"), "");
}

TEST(AuthTest, EachTokenHasItsTenant) {
  const auto auth = Read("# tenants\n\nacme  t0ken-1\nacme t0ken-2\n  zeta t0ken-3\n");
  ASSERT_TRUE(auth.ok()) << auth.status();
  EXPECT_TRUE(auth->on());
  EXPECT_EQ(*auth->Tenant("Bearer t0ken-1"), "acme");
  EXPECT_EQ(*auth->Tenant("Bearer t0ken-2"), "acme");
  EXPECT_EQ(*auth->Tenant("Bearer t0ken-3"), "zeta");
}

TEST(AuthTest, EverythingElseIsBadCredentials) {
  const auto auth = Read("acme t0ken-1\n");
  ASSERT_TRUE(auth.ok());
  for (const char* header :
       {"", "Bearer", "Bearer ", "Bearer t0ken-", "Bearer t0ken-11", "Bearer t0ken-2",
        "bearer t0ken-1", "Basic t0ken-1", "t0ken-1", "Bearer t0ken-1t0ken-1"}) {
    const auto tenant = auth->Tenant(header);
    EXPECT_EQ(ReasonOf(tenant.status()), Reason::kBadCredentials) << header;
    EXPECT_EQ(tenant.status().message().find("t0ken"), std::string::npos);
  }
}

TEST(AuthTest, AFileThatIsWrongNamesItsLine) {
  EXPECT_THAT(std::string(Read("a b c\n").status().message()), HasSubstr("line 1: "));
  EXPECT_THAT(std::string(Read("a b\nalone\n").status().message()), HasSubstr("line 2: "));
  EXPECT_THAT(std::string(Read("a b\nc b\n").status().message()), HasSubstr("no other line"));
  EXPECT_THAT(std::string(Read("a/b c\n").status().message()), HasSubstr("tenant of 1 to 128"));
  EXPECT_THAT(std::string(Read("# nothing\n").status().message()), HasSubstr("at least one token"));
  EXPECT_THAT(std::string(Auth::FromFile("/does/not/exist").status().message()),
              HasSubstr("cannot be opened"));
  EXPECT_THAT(std::string(Auth::FromFile("/dev/zero").status().message()),
              HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace attnd::server
