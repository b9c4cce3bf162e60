// Who calls: bearer tokens, each of a tenant.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnd::server {

class Auth {
 public:
  // Off: every caller is the one tenant "".
  Auth() = default;

  // Reads lines of "tenant token" (# comments); the error names the file and the line. Tenants
  // are [A-Za-z0-9._-]{1,128}; a tenant may have several tokens, a token only one tenant.
  static absl::StatusOr<Auth> FromFile(const std::string& path);

  bool on() const { return on_; }

  // The tenant of the metadata `authorization: Bearer TOKEN`, or BAD_CREDENTIALS. Takes the same
  // time whichever token is wrong, and wherever. `header` is empty when there is none.
  absl::StatusOr<std::string> Tenant(const std::string& header) const;

 private:
  absl::Status AddLine(const std::string& line);

  bool on_ = false;
  std::vector<std::pair<std::string, std::string>> tokens_;  // token, tenant
};

}  // namespace attnd::server
