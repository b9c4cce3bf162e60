// TLS files: what is wrong with them is said by flag and file.
#include "server/credentials.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

constexpr char kCert[] = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
constexpr char kKey[] = "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n";

std::string Message(const Config& config) {
  return std::string(MakeCredentials(config).status().message());
}

TEST(CredentialsTest, PlainWithoutFiles) {
  EXPECT_TRUE(MakeCredentials(Config()).ok());
  EXPECT_TRUE(CheckCredentials(Config()).ok());
}

TEST(CredentialsTest, EveryFileIsCheckedByName) {
  TempDir dir;
  const std::string cert = dir.Write("cert.pem", kCert);
  const std::string key = dir.Write("key.pem", kKey);
  Config config;
  config.tls_cert = dir.path() + "/missing";
  config.tls_key = key;
  EXPECT_THAT(Message(config), HasSubstr("--tls_cert=" + config.tls_cert + ": cannot be opened"));
  config.tls_cert = key;
  EXPECT_THAT(Message(config), HasSubstr("expected a PEM file with a CERTIFICATE"));
  config.tls_cert = cert;
  config.tls_key = cert;
  EXPECT_THAT(Message(config), HasSubstr("--tls_key=" + cert +
                                         ": expected a PEM file with a "
                                         "PRIVATE KEY"));
  config.tls_key = key;
  config.tls_client_ca = key;
  EXPECT_THAT(Message(config), HasSubstr("--tls_client_ca="));
  config.tls_client_ca = cert;
  EXPECT_EQ(Message(config), "");
  EXPECT_EQ(CheckCredentials(config).message(),
            "--tls_cert=" + cert + " and --tls_key=" + key +
                ": the key is not the certificate's, or one of them is broken");
}

}  // namespace
}  // namespace attnd::server
