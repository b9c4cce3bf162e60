// What the HTTP side answers: to each path, and to what it does not serve.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace attnd::server {

struct HttpHandlers {
  std::function<std::string()> metrics;
  std::function<bool()> ready;
  std::function<std::string()> status;  // JSON
};

struct HttpPage {
  int status = 200;
  std::string body;
  std::string type = "text/plain";
  std::vector<std::pair<std::string, std::string>> headers = {};  // beside those of every page
};

// The headers of every page.
const std::vector<std::pair<std::string, std::string>>& CommonHeaders();

// The page of a request's method ("GET") and target ("/metrics?x=1"). 500 when a handler throws.
HttpPage MakeHttpPage(const HttpHandlers& handlers, const std::string& method,
                      const std::string& target);

}  // namespace attnd::server
