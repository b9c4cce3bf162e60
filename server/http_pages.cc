// What the HTTP side answers.
#include "server/http_pages.h"

#include <exception>

#include "server/status_page.h"

namespace attnd::server {
namespace {

HttpPage PageAt(const HttpHandlers& handlers, const std::string& path) {
  if (path == "/healthz") {
    return {200, "ok\n"};
  }
  if (path == "/readyz") {
    return handlers.ready() ? HttpPage{200, "ready\n"} : HttpPage{503, "not ready\n"};
  }
  if (path == "/metrics") {
    return {200, handlers.metrics(), "text/plain; version=0.0.4; charset=utf-8"};
  }
  if (path == "/status.json") {
    return {200, handlers.status(), "application/json"};
  }
  if (path == "/") {
    StatusPage page = MakeStatusPage();
    return {200,
            std::move(page.html),
            "text/html; charset=utf-8",
            {{"Content-Security-Policy", std::move(page.security_policy)}}};
  }
  return {404, "not found: here are /, /status.json, /metrics, /healthz and /readyz\n"};
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& CommonHeaders() {
  static const std::vector<std::pair<std::string, std::string>> headers = {
      {"Cache-Control", "no-store"},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Resource-Policy", "same-origin"}};
  return headers;
}

HttpPage MakeHttpPage(const HttpHandlers& handlers, const std::string& method,
                      const std::string& target) {
  if (method != "GET" && method != "HEAD") {
    return {405, "only GET and HEAD\n", "text/plain", {{"Allow", "GET, HEAD"}}};
  }
  try {
    return PageAt(handlers, target.substr(0, target.find_first_of("?#")));
  } catch (const std::exception&) {
    return {500, "this page failed\n"};
  }
}

}  // namespace attnd::server
