#include "client/attnctl/drain_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "client/attnctl/table.h"
#include "client/attnctl/units.h"
#include "client/cpp/error.h"
#include "core/text.h"

namespace attnd::attnctl {
namespace {

using Outcome = client::DrainedSession::Outcome;

constexpr size_t kFailuresShown = 20;

const char* Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kMoved:
      return "moved";
    case Outcome::kWasThere:
      return "was_there";
    case Outcome::kEnded:
      return "ended";
    case Outcome::kFailed:
      return "failed";
  }
  return "?";
}

std::string Servers(const DrainReport& report) {
  struct Sum {
    int64_t sessions = 0, bytes = 0, longest_ms = 0;
    std::set<std::string> keys;
  };
  std::map<std::string, Sum> sums;
  for (const auto& [id, session] : report.sessions) {
    if (!session.server.empty()) {
      Sum& sum = sums[session.server];
      ++sum.sessions;
      sum.bytes += session.bytes;
      sum.longest_ms = std::max<int64_t>(sum.longest_ms, session.took.count());
      sum.keys.insert(session.affinity_key);
    }
  }
  if (sums.empty()) {
    return "";
  }
  Table table({"to", "sessions", "keys", "data", "longest move"});
  for (const auto& [server, sum] : sums) {
    table.Row({server, Count(sum.sessions), Count(static_cast<int64_t>(sum.keys.size())),
               Bytes(static_cast<double>(sum.bytes)),
               Duration(1e6 * static_cast<double>(sum.longest_ms))});
  }
  return table.ToString();
}

std::string Failures(const DrainReport& report) {
  List list;
  size_t shown = 0;
  for (const auto& [id, session] : report.sessions) {
    if (session.outcome == Outcome::kFailed && ++shown <= kFailuresShown) {
      const client::Error error = client::ErrorOf(session.status);
      list.Item("stays: " + id,
                Printable(error.message) + (error.reason.empty() ? "" : " (" + error.reason + ")"));
    }
  }
  const std::string more =
      shown > kFailuresShown
          ? Count(static_cast<int64_t>(shown - kFailuresShown)) + " more stay; --json lists all\n"
          : "";
  return list.ToString() + more;
}

}  // namespace

int64_t DrainReport::Number(Outcome outcome) const {
  return std::count_if(sessions.begin(), sessions.end(),
                       [outcome](const auto& entry) { return entry.second.outcome == outcome; });
}

std::string Json(const DrainReport& report) {
  nlohmann::ordered_json json = {{"server_id", report.server_id},
                                 {"seconds", report.seconds},
                                 {"moved", report.Number(Outcome::kMoved)},
                                 {"was_there", report.Number(Outcome::kWasThere)},
                                 {"ended", report.Number(Outcome::kEnded)},
                                 {"failed", report.Number(Outcome::kFailed)},
                                 {"left", report.left},
                                 {"sessions", nlohmann::ordered_json::array()}};
  for (const auto& [id, session] : report.sessions) {
    const client::Error error = client::ErrorOf(session.status);
    json["sessions"].push_back({{"session_id", id},
                                {"affinity_key", session.affinity_key},
                                {"outcome", Name(session.outcome)},
                                {"server", session.server},
                                {"data_bytes", std::to_string(session.bytes)},
                                {"milliseconds", session.took.count()},
                                {"reason", error.reason},
                                {"message", error.message}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string Text(const DrainReport& report) {
  std::string text = Servers(report) + Failures(report);
  text += Count(report.Number(Outcome::kMoved)) + " moved, " +
          Count(report.Number(Outcome::kWasThere)) + " were there already, " +
          Count(report.Number(Outcome::kEnded)) + " ended meanwhile, " +
          Count(report.Number(Outcome::kFailed)) + " stay; " + Duration(1e9 * report.seconds) +
          "\n";
  return text;
}

}  // namespace attnd::attnctl
