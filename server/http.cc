// The HTTP side: the status page, /status.json, /metrics, /healthz and /readyz.
#include "server/http.h"

#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "httplib.h"
#include "server/listen_address.h"
#include "server/status_page.h"

namespace attnd::server {
namespace {

// Probes, scrapers and status pages: what they ask for takes milliseconds. A connection is a
// request, for a thread that waits for another one is lost to probes: four pages that stayed
// connected kept /readyz waiting for seconds.
constexpr size_t kThreads = 8;
constexpr size_t kRequestsOfAConnection = 1;
constexpr time_t kTimeoutSeconds = 2;
constexpr size_t kMaxRequestBytes = 8192;

void SetRoutes(httplib::Server& server, const HttpHandlers& handlers) {
  server.Get("/metrics", [handlers](const httplib::Request&, httplib::Response& response) {
    response.set_content(handlers.metrics(), "text/plain; version=0.0.4; charset=utf-8");
  });
  server.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("ok\n", "text/plain");
  });
  server.Get("/readyz", [handlers](const httplib::Request&, httplib::Response& response) {
    const bool ready = handlers.ready();
    response.status = ready ? 200 : 503;
    response.set_content(ready ? "ready\n" : "not ready\n", "text/plain");
  });
  server.Get("/status.json", [handlers](const httplib::Request&, httplib::Response& response) {
    response.set_content(handlers.status(), "application/json");
  });
  server.Get("/", [](const httplib::Request&, httplib::Response& response) {
    const StatusPage page = MakeStatusPage();
    response.set_header("Content-Security-Policy", page.security_policy);
    response.set_content(page.html, "text/html; charset=utf-8");
  });
}

}  // namespace

struct HttpServer::Impl {
  httplib::Server server;
};

HttpServer::HttpServer() : impl_(std::make_unique<Impl>()) {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              HttpHandlers handlers) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort("http", address);
  if (!parsed.ok()) {
    return parsed.status();
  }
  std::unique_ptr<HttpServer> http(new HttpServer());
  httplib::Server& server = http->impl_->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_keep_alive_max_count(kRequestsOfAConnection);
  server.set_keep_alive_timeout(kTimeoutSeconds);
  server.set_read_timeout(kTimeoutSeconds);
  server.set_write_timeout(kTimeoutSeconds);
  server.set_payload_max_length(kMaxRequestBytes);
  // The library's default is SO_REUSEPORT, with which two servers share a port without a word.
  server.set_socket_options([](int fd) {
    const int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server.set_default_headers({{"Cache-Control", "no-store"},
                              {"X-Content-Type-Options", "nosniff"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cross-Origin-Resource-Policy", "same-origin"}});
  SetRoutes(server, handlers);
  int port = parsed->port;
  if (port == 0) {
    port = server.bind_to_any_port(parsed->host);
  } else if (!server.bind_to_port(parsed->host, port)) {
    port = -1;
  }
  if (port < 0) {
    return absl::UnavailableError(absl::StrCat(
        "--http=", address, ": cannot be bound: in use, or not an address of this machine"));
  }
  http->address_ = WithPort(address, port);
  http->thread_ = std::thread([&server] { server.listen_after_bind(); });
  while (!server.is_running()) {
    std::this_thread::yield();  // stop() before the loop runs would be lost
  }
  return http;
}

HttpServer::~HttpServer() {
  impl_->server.stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace attnd::server
