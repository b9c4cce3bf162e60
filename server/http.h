// The HTTP side: the status page at /, /status.json, /metrics, /healthz and /readyz. It has a
// thread of its own and never waits for the engine, nor for a client.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "server/http_pages.h"

namespace attnd::server {

// Tests have others.
struct HttpLimits {
  // Of a connection, from its arrival to its end, however it reads and writes.
  std::chrono::milliseconds deadline{5000};
  // Beyond it the oldest goes, so that a probe never waits for room.
  size_t connections = 256;
};

class HttpServer {
 public:
  // Binds `address` (host:port, port 0 takes a free one) and serves; one line when it cannot.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           HttpHandlers handlers,
                                                           HttpLimits limits = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  const std::string& address() const { return address_; }  // with the true port

 private:
  class Loop;
  HttpServer();

  std::unique_ptr<Loop> loop_;
  std::string address_;
  std::thread thread_;
};

}  // namespace attnd::server
