#include "client/cpp/error.h"

#include <cstdlib>

#include "absl/strings/cord.h"

namespace attnd::client {
namespace {

constexpr char kReasonUrl[] = "attnd.client/reason";
constexpr char kRetryUrl[] = "attnd.client/retry_after_ms";

std::string Payload(const absl::Status& status, const char* url) {
  const absl::optional<absl::Cord> payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace

Error ErrorOf(const absl::Status& status) {
  Error error;
  error.code = status.code();
  error.message = std::string(status.message());
  error.reason = Payload(status, kReasonUrl);
  const std::string retry = Payload(status, kRetryUrl);
  if (!retry.empty()) {
    error.retry_after = std::chrono::milliseconds(std::strtoll(retry.c_str(), nullptr, 10));
  }
  return error;
}

absl::Status ToStatus(const Error& error) {
  absl::Status status(error.code, error.message);
  if (!error.reason.empty()) {
    status.SetPayload(kReasonUrl, absl::Cord(error.reason));
  }
  if (error.retry_after.has_value()) {
    status.SetPayload(kRetryUrl, absl::Cord(std::to_string(error.retry_after->count())));
  }
  return status;
}

}  // namespace attnd::client
