// The status page: one HTML file with its style and its script, made of server/status_page/ at
// build time.
#pragma once

#include <string>

namespace attnd::server {

struct StatusPage {
  std::string html;
  // The header Content-Security-Policy: the page's own script and style run, of this answer alone,
  // and it asks nobody but its server.
  std::string security_policy;
};

StatusPage MakeStatusPage();

}  // namespace attnd::server
