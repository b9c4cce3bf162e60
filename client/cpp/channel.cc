#include "client/cpp/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <limits>

namespace attnd::client {
namespace {

constexpr int kKeepaliveMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
// A server that restarts is found again within this, not gRPC's two minutes.
constexpr int kMaxReconnectMs = 2'000;
// What gRPC grants a connection to come about, TLS and all (its name for it says otherwise).
constexpr int kConnectMs = 5'000;

grpc::ChannelArguments Arguments(const ClientOptions& options) {
  const int limit = static_cast<int>(
      std::min<int64_t>(options.max_message_bytes, std::numeric_limits<int>::max()));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(limit);
  arguments.SetMaxSendMessageSize(limit);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // 0: no bound, so that a session that thinks for long keeps its connection.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectMs);
  return arguments;
}

std::shared_ptr<grpc::ChannelCredentials> Credentials(const TlsOptions& tls) {
  if (!tls.enabled) {
    return grpc::InsecureChannelCredentials();
  }
  return grpc::SslCredentials({tls.authorities, tls.private_key, tls.certificate});
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Open(const std::string& target,
                                                    const ClientOptions& options,
                                                    const grpc::ChannelArguments& arguments) {
  auto channel = grpc::CreateCustomChannel(target, Credentials(options.tls), arguments);
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + options.connect_timeout)) {
    return absl::UnavailableError("no server answers at " + target + " within " +
                                  std::to_string(options.connect_timeout.count()) + " ms" +
                                  (options.tls.enabled ? ", or not with TLS that it accepts" : ""));
  }
  return channel;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target,
                                                           const ClientOptions& options) {
  return Open(target, options, Arguments(options));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenNarrowChannel(const std::string& target,
                                                                 const ClientOptions& options) {
  grpc::ChannelArguments arguments = Arguments(options);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 5);  // the least that gRPC takes
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);               // which would widen it
  return Open(target, options, arguments);
}

}  // namespace attnd::client
