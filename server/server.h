// The process: opens, binds, loads, warms, serves, drains, stops.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/engine.h"
#include "server/admission.h"
#include "server/auth.h"
#include "server/config.h"
#include "server/grpc_server.h"
#include "server/http.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/model_loader.h"
#include "server/service_context.h"
#include "server/status_document.h"
#include "server/stream_registry.h"

namespace attnd::server {

class Server {
 public:
  // `config` is valid, its automatic values are resolved, and `log` outlives the server. `shown`
  // are the settings as the status page has them.
  Server(Config config, OpenedModel model, std::unique_ptr<kernels::Backend> backend, Auth auth,
         std::string version, std::vector<ShownSetting> shown, const Log& log);
  ~Server();

  // Binds all addresses first, so that a port in use is known at once; calls are answered
  // NOT_READY until the model is loaded and warm. The error is one line. `settings` are logged
  // once the addresses are bound: a start that fails before leaves that line alone on stderr.
  absl::Status Start(const Log::Fields& settings);

  // "attnd ready grpc=... http=... model=... device=...".
  std::string ReadyLine() const;

  // Not ready at once, served for --drain_seconds, then refusing; returns when running steps
  // and streams have ended or --shutdown_grace_seconds have passed.
  void Stop();

 private:
  absl::Status Bind();
  absl::Status Load();
  void BeginDraining(const char* why);

  const Config config_;
  OpenedModel model_;
  std::unique_ptr<kernels::Backend> backend_;  // until the engine has it
  const Auth auth_;
  const std::string version_;
  const Log& log_;
  const SystemClock clock_;
  Metrics metrics_;
  Admission admission_;
  StreamRegistry streams_;
  ByteBudget budget_;
  RequestLog requests_;
  ServiceContext service_;
  StatusDocument status_;
  // In this order: what serves calls goes before what it calls.
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<GrpcServer> grpc_;
};

}  // namespace attnd::server
