// The gRPC server: its services, its limits, its addresses, its health.
#include "server/grpc_server.h"

#include <algorithm>
#include <chrono>
#include <deque>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "server/admin_service.h"
#include "server/attention_service.h"
#include "server/idle_heartbeat.h"
#include "server/listen_address.h"
#include "server/model_service.h"
#include "server/session_service.h"

namespace attnd::server {
namespace {

constexpr const char* kServices[] = {"", "attnd.v1.AttentionService", "attnd.v1.SessionService",
                                     "attnd.v1.ModelService", "attnd.v1.AdminService"};

// gRPC's own messages, as lines of our log.
void LogAs(bool json, const gpr_log_func_args* args) {
  Log(json).Warn("grpc", {{"message", args->message}});
}
void LogText(gpr_log_func_args* args) { LogAs(false, args); }
void LogJson(gpr_log_func_args* args) { LogAs(true, args); }
void LogNothing(gpr_log_func_args* /*args*/) {}

void SetArguments(const Config& config, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(config.max_message_bytes));
  builder.SetMaxSendMessageSize(static_cast<int>(config.max_message_bytes));
  // Tensors do not compress, and gRPC inflates a message before it looks at its size: three
  // megabytes of zeros became three gigabytes.
  builder.SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  // With SO_REUSEPORT, gRPC's default, two servers share a port without a word.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // gRPC's default is 2^32 - 1; what is beyond waits in the client.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 128);
  // A dead peer is found within 80 s; idle channels may ping every 5 s, where gRPC's default of
  // 300 s answers the usual 10 s with GOAWAY too_many_pings.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  // No MAX_CONNECTION_AGE: sessions live on one server and streams on one connection for hours;
  // breaking connections to spread them again would only break steps.
  //
  // A backstop behind the queue's limit: under its pressure gRPC kills streams, so it is wide.
  grpc::ResourceQuota quota("attnd");
  quota.Resize(
      static_cast<size_t>(std::max<int64_t>(int64_t{1} << 30, 4 * config.max_message_bytes)));
  builder.SetResourceQuota(quota);
}

// gRPC does not say.
absl::Status WhyNotBound(const Config& config, const std::string& address) {
  const absl::Status status = IsUnixAddress(address) ? CheckAddressIsOurs("listen", address)
                                                     : BindTcp("listen", address).status();
  if (!status.ok()) {
    return status;
  }
  return absl::UnavailableError(absl::StrCat(
      "--listen=", address, ": cannot be bound",
      config.tls_cert.empty() ? "" : ": --tls_cert and --tls_key do not fit together"));
}

}  // namespace

struct GrpcServer::Impl {
  explicit Impl(ServiceContext& service)
      : attention(service), sessions(service), model(service), admin(service) {}

  AttentionService attention;
  SessionService sessions;
  ModelService model;
  AdminService admin;
  std::unique_ptr<grpc::Server> server;  // before the services in destruction
  std::unique_ptr<IdleHeartbeat> heartbeat;
};

GrpcServer::GrpcServer() = default;
GrpcServer::~GrpcServer() {
  if (impl_ != nullptr && impl_->server != nullptr) {
    Shutdown(0);
  }
}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    ServiceContext& service, const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  const Config& config = service.config;
  for (const std::string& address : config.listen) {
    if (absl::Status status = CheckUnixSocketFree(address); !status.ok()) {
      return status;
    }
  }
  std::unique_ptr<GrpcServer> self(new GrpcServer());
  self->impl_ = std::make_unique<Impl>(service);
  Impl& impl = *self->impl_;
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_set_log_function(&LogNothing);  // of a failed bind it writes a paragraph
  // A request whose strings are not UTF-8 fails by itself; protobuf would also write to stderr.
  google::protobuf::SetLogHandler(nullptr);
  grpc::EnableDefaultHealthCheckService(true);
  if (config.reflection) {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  }
  grpc::ServerBuilder builder;
  SetArguments(config, builder);
  std::deque<int> ports;  // stable addresses
  for (const std::string& address : config.listen) {
    builder.AddListeningPort(address, credentials, &ports.emplace_back(0));
  }
  builder.RegisterService(&impl.attention);
  builder.RegisterService(&impl.sessions);
  builder.RegisterService(&impl.model);
  builder.RegisterService(&impl.admin);
  impl.server = builder.BuildAndStart();
  gpr_set_log_function(config.log_format == "json" ? &LogJson : &LogText);
  std::vector<std::string> addresses;
  for (size_t i = 0; i < ports.size(); ++i) {
    const std::string& address = config.listen[i];
    if (impl.server == nullptr && ports[i] == 0) {
      return WhyNotBound(config, address);
    }
    addresses.push_back(IsUnixAddress(address) ? address : WithPort(address, ports[i]));
  }
  if (impl.server == nullptr) {
    return absl::InternalError("gRPC did not start");
  }
  self->addresses_ = absl::StrJoin(addresses, ",");
  self->SetHealthy(false);
  impl.heartbeat = std::make_unique<IdleHeartbeat>(*impl.server);
  return self;
}

void GrpcServer::SetHealthy(bool healthy) {
  for (const char* name : kServices) {
    impl_->server->GetHealthCheckService()->SetServingStatus(name, healthy);
  }
}

void GrpcServer::Shutdown(int64_t grace_ns) {
  impl_->heartbeat.reset();
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::nanoseconds(grace_ns));
  impl_->server.reset();
}

}  // namespace attnd::server
