// Who made a call, and what bounds its steps.
#include "server/service_context.h"

#include <chrono>

#include "grpcpp/server_context.h"

namespace attnd::server {
namespace {

// The deadline on our clock. gRPC says "none" by a time centuries away.
MonotonicNs ToMonotonic(std::chrono::system_clock::time_point deadline, const Clock& clock) {
  constexpr auto kFar = std::chrono::hours(24 * 365);
  const auto now = std::chrono::system_clock::now();
  if (deadline > now + kFar) {
    return kNever;
  }
  if (deadline < now - kFar) {
    return 0;
  }
  return clock.Now() + std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - now).count();
}

}  // namespace

absl::StatusOr<Caller> MakeCaller(const ServiceContext& service,
                                  const grpc::CallbackServerContext& context) {
  Caller caller;
  if (service.auth.on()) {
    const auto& metadata = context.client_metadata();
    const auto found = metadata.find("authorization");
    const std::string header =
        found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
    absl::StatusOr<std::string> tenant = service.auth.Tenant(header);
    if (!tenant.ok()) {
      return tenant.status();
    }
    caller.tenant = *std::move(tenant);
  }
  caller.connection = std::hash<std::string>()(context.peer());
  caller.deadline = ToMonotonic(context.deadline(), service.clock);
  return caller;
}

}  // namespace attnd::server
