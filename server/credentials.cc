// The server's side of a connection.
#include "server/credentials.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/file.h"
#include "grpc/support/log.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace attnd::server {
namespace {

constexpr int64_t kMaxPemBytes = int64_t{4} << 20;  // a bundle of authorities is 250 KB

absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path, const char* kind) {
  absl::StatusOr<std::string> text = ReadFile(path, kMaxPemBytes);
  if (!text.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", text.status().message()));
  }
  if (text->find("-----BEGIN ") == std::string::npos || text->find(kind) == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", path, ": expected a PEM file with a ", kind));
  }
  return text;
}

// gRPC looks at them when it listens: on an address of no network and no file, for a moment.
bool AreOfUse(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(absl::StrCat("unix-abstract:attnd-check-", getpid()), credentials,
                           &port);
  gpr_set_log_function(
      [](gpr_log_func_args* /*args*/) {});  // of a failed one it writes a paragraph
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  gpr_set_log_function(nullptr);
  return port != 0;
}

}  // namespace

absl::Status CheckCredentials(const Config& config) {
  const absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> made = MakeCredentials(config);
  if (!made.ok() || config.tls_cert.empty() || AreOfUse(*made)) {
    return made.status();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--tls_cert=", config.tls_cert, " and --tls_key=", config.tls_key,
                   ": the key is not the certificate's, or one of them is broken"));
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeCredentials(const Config& config) {
  if (config.tls_cert.empty()) {
    return grpc::InsecureServerCredentials();
  }
  absl::StatusOr<std::string> cert = ReadPem("tls_cert", config.tls_cert, "CERTIFICATE");
  if (!cert.ok()) {
    return cert.status();
  }
  absl::StatusOr<std::string> key = ReadPem("tls_key", config.tls_key, "PRIVATE KEY");
  if (!key.ok()) {
    return key.status();
  }
  grpc::SslServerCredentialsOptions options(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  if (!config.tls_client_ca.empty()) {
    absl::StatusOr<std::string> ca = ReadPem("tls_client_ca", config.tls_client_ca, "CERTIFICATE");
    if (!ca.ok()) {
      return ca.status();
    }
    options.client_certificate_request = GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
    options.pem_root_certs = *std::move(ca);
  }
  options.pem_key_cert_pairs.push_back({*std::move(key), *std::move(cert)});
  return grpc::SslServerCredentials(options);
}

}  // namespace attnd::server
