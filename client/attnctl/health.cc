// attnctl health: is the server serving?
#include <cstdio>

#include "client/attnctl/command.h"
#include "client/attnctl/connect.h"

namespace attnd::attnctl {
namespace {

const char* Name(client::Health health) {
  switch (health) {
    case client::Health::kServing:
      return "SERVING";
    case client::Health::kNotServing:
      return "NOT_SERVING";
    case client::Health::kUnknownService:
      return "SERVICE_UNKNOWN";
  }
  return "?";
}

absl::Status Run(const Args& args) {
  auto connected = ConnectFrom(args);
  if (!connected.ok()) {
    return connected.status();
  }
  const std::string service = args.Has("service") ? args.Text("service") : "";
  const absl::StatusOr<client::Health> health = (*connected)->CheckHealth(service);
  if (!health.ok()) {
    return health.status();
  }
  std::printf(args.Switch("json") ? "{\"status\": \"%s\"}\n" : "%s\n", Name(*health));
  return *health == client::Health::kServing
             ? absl::OkStatus()
             : absl::UnavailableError(args.Text("target") + " is not serving");
}

}  // namespace

Command HealthCommand() {
  return {"health",
          "Asks the server's health service; exit code 0 only when it serves.",
          "",
          "Prints SERVING, NOT_SERVING (warming up or draining) or SERVICE_UNKNOWN.\n",
          ServerFlags({{"service", Flag::Kind::kText, "",
                        "a service, as attnd.v1.AttentionService; none: the whole server"}}),
          0,
          Run};
}

}  // namespace attnd::attnctl
