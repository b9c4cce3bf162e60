// The process: opens, binds, loads, warms, serves, drains, stops.
#include "server/server.h"

#include <sys/random.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/credentials.h"
#include "server/warm_up.h"

namespace attnd::server {
namespace {

// What stays open once our own calls have ended is health watchers and reflection.
constexpr int64_t kLastCallsNs = 200'000'000;
// Refusals after the last call has ended.
constexpr int64_t kRefuseNs = 200'000'000;

// The host's name and 32 random bits: a restarted server is another one.
std::string MakeServerId() {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  unsigned bits = 0;
  if (getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) {
    bits = static_cast<unsigned>(getpid());
  }
  return absl::StrFormat("%s-%08x", host, bits);
}

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

Server::Server(Config config, OpenedModel model, std::unique_ptr<kernels::Backend> backend,
               Auth auth, std::string version, std::vector<ShownSetting> shown, const Log& log)
    : config_(std::move(config)),
      model_(std::move(model)),
      backend_(std::move(backend)),
      auth_(std::move(auth)),
      version_(std::move(version)),
      log_(log),
      metrics_(version_),
      budget_(config_.max_inflight_bytes),
      requests_(log, config_.log_requests == "sampled"),
      service_{.config = config_,
               .clock = clock_,
               .auth = auth_,
               .log = log_,
               .requests = requests_,
               .metrics = metrics_,
               .admission = admission_,
               .streams = streams_,
               .budget = budget_,
               .server_id = MakeServerId(),
               .on_drain = [this] { BeginDraining("admin"); },
               .model = {}},
      status_(service_, version_, std::move(shown)) {}

Server::~Server() = default;

absl::Status Server::Start(const Log::Fields& settings) {
  if (absl::Status status = Bind(); !status.ok()) {
    return status;
  }
  log_.Info("start", settings);
  if (config_.mla_shadow_bytes > 0) {
    log_.Warn("mla_shadow", {{"bytes", std::to_string(config_.mla_shadow_bytes)},
                             {"note",
                              "answers on global layers depend, in their rounding, on what has "
                              "room here: no bitwise batch invariance"}});
  }
  if (absl::Status status = Load(); !status.ok()) {
    return status;
  }
  admission_.BeginServing();
  grpc_->SetHealthy(true);
  log_.Info("ready", {{"grpc", grpc_->addresses()},
                      {"http", http_ == nullptr ? "" : http_->address()},
                      {"server_id", service_.server_id},
                      {"device", service_.model.device()}});
  return absl::OkStatus();
}

absl::Status Server::Bind() {
  const absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials =
      MakeCredentials(config_);
  if (!credentials.ok()) {
    return credentials.status();
  }
  if (!config_.http.empty()) {
    HttpHandlers handlers;
    handlers.metrics = [this] { return metrics_.Expose(); };
    handlers.ready = [this] { return admission_.ready(); };
    handlers.status = [this] { return status_.Json(); };
    absl::StatusOr<std::unique_ptr<HttpServer>> http =
        HttpServer::Start(config_.http, std::move(handlers));
    if (!http.ok()) {
      return http.status();
    }
    http_ = *std::move(http);
  }
  absl::StatusOr<std::unique_ptr<GrpcServer>> grpc = GrpcServer::Start(service_, *credentials);
  if (!grpc.ok()) {
    return grpc.status();
  }
  grpc_ = *std::move(grpc);
  return absl::OkStatus();
}

absl::Status Server::Load() {
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      MakeEngine(config_, model_, std::move(backend_), clock_,
                 [this](const BatchReport& report) { metrics_.BatchRan(report); });
  if (!engine.ok()) {
    return engine.status();
  }
  engine_ = *std::move(engine);
  absl::StatusOr<v1::ModelInfo> info = MakeModelInfo(config_, model_, *engine_, version_);
  if (!info.ok()) {
    return info.status();
  }
  model_.weights->Release();
  engine_->Start();
  if (absl::Status status = WarmUp(*engine_); !status.ok()) {
    return absl::Status(
        status.code(), absl::StrCat("the warm-up failed (--kv_cache_bytes=", config_.kv_cache_bytes,
                                    "): ", status.message()));
  }
  service_.model = *std::move(info);
  service_.engine = engine_.get();
  service_.row_bytes.store(2 * engine_->plan().d_model);
  metrics_.SetSource({service_.model.device(), [engine = engine_.get()] { return engine->stats(); },
                      engine_->stats().store, [this] { return budget_.used(); },
                      [this] { return admission_.draining(); }});
  return absl::OkStatus();
}

std::string Server::ReadyLine() const {
  return absl::StrCat("attnd ready grpc=", grpc_->addresses(),
                      " http=", http_ == nullptr ? "off" : http_->address(),
                      " model=", model_.config.name, " device=", service_.model.device());
}

void Server::BeginDraining(const char* why) {
  admission_.BeginDraining();
  grpc_->SetHealthy(false);
  log_.Info("draining", {{"why", why}});
}

void Server::Stop() {
  BeginDraining("signal");
  std::this_thread::sleep_for(std::chrono::nanoseconds(Nanoseconds(config_.drain_seconds)));
  admission_.BeginRefusing();
  Log::Fields refusing = {{"live_calls", std::to_string(service_.live_calls.load())}};
  if (config_.mla_shadow_bytes > 0) {
    refusing.emplace_back("mla_shadow_used_bytes", std::to_string(engine_->stats().shadow_bytes));
  }
  log_.Info("refusing", refusing);
  const MonotonicNs deadline = clock_.Now() + Nanoseconds(config_.shutdown_grace_seconds);
  if (!engine_->Drain(deadline)) {
    log_.Warn("grace_passed", {{"live_calls", std::to_string(service_.live_calls.load())}});
    engine_->Stop();  // fails what is left, so that its calls can end
  }
  streams_.CloseAll();
  while (service_.live_calls.load() > 0 && clock_.Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Calls that arrive from now on, gRPC itself ends as CANCELLED, without a reason: first those
  // that were on their way get DRAINING.
  std::this_thread::sleep_for(std::chrono::nanoseconds(kRefuseNs));
  grpc_->Shutdown(kLastCallsNs);
  engine_->Stop();
  http_.reset();
  requests_.Flush();
  log_.Info("stopped");
}

}  // namespace attnd::server
