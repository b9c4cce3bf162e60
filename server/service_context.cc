// Who made a call, and what bounds its steps.
#include "server/service_context.h"

#include "grpcpp/server_context.h"

namespace attnd::server {
// "None" is a time centuries away, and clients send such times too: in nanoseconds they are more
// than an int64_t holds.
MonotonicNs ToMonotonic(gpr_timespec deadline, const Clock& clock) {
  constexpr int64_t kFar = 365 * 24 * 3600;
  const gpr_timespec left = gpr_time_sub(gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC),
                                         gpr_now(GPR_CLOCK_MONOTONIC));
  if (left.tv_sec > kFar) {
    return kNever;
  }
  if (left.tv_sec < -kFar) {
    return 0;
  }
  return clock.Now() + left.tv_sec * 1'000'000'000 + left.tv_nsec;
}

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
  caller.deadline = ToMonotonic(context.raw_deadline(), service.clock);
  return caller;
}

}  // namespace attnd::server
