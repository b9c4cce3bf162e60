// The server's side of a connection: plain, TLS, or TLS with client certificates.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "grpcpp/security/server_credentials.h"
#include "server/config.h"

namespace attnd::server {

// Reads the PEM files, and has gRPC say whether it can serve with them: that the key is the
// certificate's, which their texts do not show. The error names the flags and the files.
absl::Status CheckCredentials(const Config& config);

// Reads the PEM files; the error names the flag and the file.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeCredentials(const Config& config);

}  // namespace attnd::server
