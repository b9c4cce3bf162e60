// The channel to a server: arguments that agree with the server's, so that neither side closes
// the connection on the other. The only place of the client that sets them.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/options.h"

namespace attnd::client {

// `target` is host:port, unix:path, or any target that gRPC resolves. Waits for the connection;
// UNAVAILABLE when there is none within options.connect_timeout.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target,
                                                           const ClientOptions& options);

// One on which the server can send next to nothing that is not read yet: a stream stands still
// in the server until its client reads.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenNarrowChannel(const std::string& target,
                                                                 const ClientOptions& options);

}  // namespace attnd::client
