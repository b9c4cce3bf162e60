// Addresses to listen on.
#include "server/listen_address.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace attnd::server {
namespace {

TEST(ListenAddressTest, SplitsHostAndPort) {
  const auto v4 = ParseHostPort("listen", "127.0.0.1:8470");
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4->host, "127.0.0.1");
  EXPECT_EQ(v4->port, 8470);
  const auto v6 = ParseHostPort("listen", "[::1]:0");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->port, 0);
}

TEST(ListenAddressTest, RefusesTheRest) {
  for (const char* text : {"", ":", ":80", "host", "host:", "host:-1", "host:65536", "::1:80",
                           "host:8 0", "a b:80", "[]:80", "http://host:80", "host:99999999999"}) {
    EXPECT_FALSE(ParseHostPort("listen", text).ok()) << text;
  }
}

TEST(ListenAddressTest, FillsInThePort) {
  EXPECT_EQ(WithPort("127.0.0.1:0", 4242), "127.0.0.1:4242");
  EXPECT_EQ(WithPort("[::1]:0", 7), "[::1]:7");
}

TEST(ListenAddressTest, AUnixPathMustFit) {
  EXPECT_TRUE(CheckListenAddress("listen", "unix:/tmp/a.sock").ok());
  EXPECT_FALSE(CheckListenAddress("listen", "unix:/" + std::string(107, 'x')).ok());
}

TEST(ListenAddressTest, ALiveUnixSocketIsInUseAStaleOneIsNot) {
  TempDir dir;
  const std::string path = dir.path() + "/s";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  EXPECT_FALSE(CheckUnixSocketFree("unix:" + path).ok());
  EXPECT_FALSE(CheckUnixSocketFree("unix://" + path).ok());
  close(fd);  // the file stays behind, as after a crash
  EXPECT_TRUE(CheckUnixSocketFree("unix:" + path).ok());
  EXPECT_TRUE(CheckUnixSocketFree("127.0.0.1:1").ok());
}

}  // namespace
}  // namespace attnd::server
