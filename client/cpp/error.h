// What went wrong, as the server or gRPC said it. Every call of this library returns an
// absl::Status; ErrorOf() reads from it what a program decides by.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace attnd::client {

struct Error {
  absl::StatusCode code = absl::StatusCode::kOk;
  // "POSITION_MISMATCH": the server's own word (proto/README.md lists them). Empty when gRPC made
  // the status (transport, a deadline, a limit of this client); then the effect is unknown.
  std::string reason;
  std::string message;
  // Set where the server advises to try again after so long.
  std::optional<std::chrono::milliseconds> retry_after;

  bool ok() const { return code == absl::StatusCode::kOk; }
  // True when the call is known to have changed nothing: the server itself refused it.
  bool no_effect() const { return !ok() && !reason.empty(); }
};

// The parts of a status that a call of this library returned.
Error ErrorOf(const absl::Status& status);

// The status that carries these parts.
absl::Status ToStatus(const Error& error);

}  // namespace attnd::client
