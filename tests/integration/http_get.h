// HTTP GET, for the server's metrics and probes.
#pragma once

#include <string>

namespace attnd {

struct HttpAnswer {
  int status = 0;  // 0: no answer
  std::string head;
  std::string body;
};

// GET http://ADDRESS PATH; address is "host:port" with a numeric IPv4 host. Takes 10 s at most.
HttpAnswer HttpGet(const std::string& address, const std::string& path);

}  // namespace attnd
