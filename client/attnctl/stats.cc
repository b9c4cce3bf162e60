// attnctl stats: one moment of a server.
#include <cstdio>

#include "client/attnctl/command.h"
#include "client/attnctl/connect.h"
#include "client/attnctl/table.h"
#include "client/attnctl/units.h"

namespace attnd::attnctl {
namespace {

std::string Render(const v1::Stats& stats) {
  const double capacity = static_cast<double>(stats.kv_cache_capacity_bytes());
  const auto share = [capacity](int64_t bytes) {
    const double value = static_cast<double>(bytes);
    return Bytes(value) + "  (" + Percent(capacity > 0 ? value / capacity : 0) + ")";
  };
  List list;
  list.Item("server", stats.server_id());
  list.Item("cache capacity", Bytes(capacity));
  list.Item("cache used", share(stats.kv_cache_used_bytes()));
  list.Item("cache reserved", share(stats.kv_cache_reserved_bytes()));
  list.Item("sessions", Count(stats.sessions()));
  list.Item("queued steps", Count(stats.queued_steps()));
  list.Item("running rows", Count(stats.running_rows()));
  list.Item("draining", stats.draining() ? "yes" : "no");
  return list.ToString();
}

absl::Status Run(const Args& args) {
  auto connected = ConnectFrom(args);
  if (!connected.ok()) {
    return connected.status();
  }
  const absl::StatusOr<v1::Stats> stats = (*connected)->Stats();
  if (!stats.ok()) {
    return stats.status();
  }
  if (args.Switch("json")) {
    PrintJson(*stats);
  } else {
    std::fputs(Render(*stats).c_str(), stdout);
  }
  return absl::OkStatus();
}

}  // namespace

Command StatsCommand() {
  return {
      "stats",
      "Prints one moment of a server: cache, sessions, queue.",
      "",
      "'reserved' is promised to sessions and not yet used. For a time series, scrape /metrics.\n",
      ServerFlags(),
      0,
      Run};
}

}  // namespace attnd::attnctl
