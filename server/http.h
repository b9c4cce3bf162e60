// The HTTP side: the status page at /, /status.json, /metrics, /healthz and /readyz. It has threads
// of its own and never waits for the engine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace attnd::server {

struct HttpHandlers {
  std::function<std::string()> metrics;
  std::function<bool()> ready;
  std::function<std::string()> status;  // JSON
};

class HttpServer {
 public:
  // Binds `address` (host:port, port 0 takes a free one) and serves; one line when it cannot.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           HttpHandlers handlers);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  const std::string& address() const { return address_; }  // with the true port

 private:
  struct Impl;
  HttpServer();

  std::unique_ptr<Impl> impl_;
  std::string address_;
  std::thread thread_;
};

}  // namespace attnd::server
