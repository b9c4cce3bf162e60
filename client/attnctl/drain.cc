// attnctl drain: a server is emptied, its sessions go where a balancer sends their keys.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "client/attnctl/command.h"
#include "client/attnctl/connect.h"
#include "client/attnctl/progress_bar.h"
#include "client/attnctl/table.h"
#include "client/attnctl/units.h"
#include "client/cpp/drain.h"
#include "core/text.h"

namespace attnd::attnctl {
namespace {

using client::DrainedSession;
using Outcome = DrainedSession::Outcome;
using Groups = std::vector<std::vector<v1::Session>>;
using Clock = std::chrono::steady_clock;

constexpr size_t kFailuresShown = 20;

// What became of the sessions, by id: a later try takes the place of an earlier one.
struct Report {
  std::string server_id;
  std::map<std::string, DrainedSession> sessions;
  int64_t left = 0;  // of all tenants
  double seconds = 0;

  int64_t Number(Outcome outcome) const {
    return std::count_if(sessions.begin(), sessions.end(),
                         [outcome](const auto& entry) { return entry.second.outcome == outcome; });
  }
};

// Cache bytes of all sessions of the round, and how much of them has gone. Thread-safe.
class RoundProgress {
 public:
  explicit RoundProgress(const Groups& groups) : bar_("drain") {
    for (const auto& group : groups) {
      for (const v1::Session& session : group) {
        total_ += session.cache_bytes();
      }
    }
  }

  // Of one thread, which moves one session after the other.
  client::Progress Part(int64_t* last) {
    return [this, last](int64_t done, int64_t) {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_ += done - *last;
      *last = done;
      bar_.Show(done_, std::max(done_, total_));
    };
  }

 private:
  std::mutex mutex_;
  ProgressBar bar_;
  int64_t total_ = 0;
  int64_t done_ = 0;
};

// One try of every session that is there.
void MoveAll(client::Drain& drain, const Groups& groups, int64_t parallel, Report* report) {
  RoundProgress progress(groups);
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < groups.size(); i = next++) {
      int64_t last = 0;
      drain.Move(groups[i], progress.Part(&last), [&](const DrainedSession& session) {
        const std::lock_guard<std::mutex> lock(mutex);
        report->sessions[session.session_id] = session;
        last = 0;
      });
    }
  };
  std::vector<std::thread> threads;
  const size_t count = std::min(static_cast<size_t>(parallel), groups.size());
  for (size_t i = 1; i < count; ++i) {
    threads.emplace_back(work);
  }
  work();
  for (std::thread& thread : threads) {
    thread.join();
  }
}

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

std::string Json(const Report& report) {
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

std::string Servers(const Report& report) {
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

std::string Failures(const Report& report) {
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

std::string Text(const Report& report) {
  std::string text = Servers(report) + Failures(report);
  text += Count(report.Number(Outcome::kMoved)) + " moved, " +
          Count(report.Number(Outcome::kWasThere)) + " were there already, " +
          Count(report.Number(Outcome::kEnded)) + " ended meanwhile, " +
          Count(report.Number(Outcome::kFailed)) + " stay; " + Duration(1e9 * report.seconds) +
          "\n";
  return text;
}

// Tries, until nothing is left or no try is.
absl::Status Empty(const Args& args, client::Client& source, client::Drain& drain, Report* report) {
  for (int64_t round = 0; round < args.Int("tries"); ++round) {
    const absl::StatusOr<Groups> left = drain.Left();
    if (!left.ok()) {
      return left.status();
    }
    if (left->empty()) {
      break;
    }
    if (round > 0) {  // those that came, and those that failed
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    MoveAll(drain, *left, args.Int("parallel"), report);
  }
  const absl::StatusOr<v1::Stats> stats = source.Stats();
  if (!stats.ok()) {
    return stats.status();
  }
  report->left = stats->sessions();
  return absl::OkStatus();
}

absl::Status Run(const Args& args) {
  if (args.words().size() != 1 || !args.Has("via")) {
    return UsageError("expected 'TARGET --via BALANCER'");
  }
  const auto source = ConnectTo(args, args.words()[0]);
  if (!source.ok()) {
    return source.status();
  }
  client::DrainOptions options;
  options.route_wait = std::chrono::seconds(args.Int("route_wait_s"));
  options.settle = std::chrono::milliseconds(args.Int("settle_ms"));
  client::Drain drain(
      **source, [&args](const std::string& key) { return ConnectTo(args, args.Text("via"), key); },
      options);
  const auto start = Clock::now();
  if (absl::Status status = drain.Begin(); !status.ok()) {
    return status;
  }
  Report report;
  report.server_id = drain.server_id();
  if (absl::Status status = Empty(args, **source, drain, &report); !status.ok()) {
    return status;
  }
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::fputs((args.Switch("json") ? Json(report) : Text(report)).c_str(), stdout);
  const int64_t failed = report.Number(Outcome::kFailed);
  if (failed == 0 && report.left == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      Count(report.left) + (report.left == 1 ? " session is at " : " sessions are at ") +
      args.words()[0] + " yet" +
      (report.left > failed ? ", some of other tenants or new ones" : "") +
      "; the drain can be run again");
}

}  // namespace

Command DrainCommand() {
  std::vector<Flag> flags = ServerFlags({
      {"via", Flag::Kind::kText, "", "the balancer before the servers, host:port"},
      {"parallel", Flag::Kind::kInt, "4", "affinity keys whose sessions move at a time", 1, 256},
      {"tries", Flag::Kind::kInt, "3", "how often what is left is moved", 1, 1000},
      {"route_wait_s", Flag::Kind::kInt, "30",
       "how long the balancer may take to send a key elsewhere", 0, 3600},
      {"settle_ms", Flag::Kind::kInt, "1000",
       "pause before the first move, for calls that are on their way to TARGET", 0, 600'000},
  });
  std::erase_if(flags, [](const Flag& flag) { return flag.name == "target"; });
  return {
      "drain",
      "Empties a server: its sessions move elsewhere while their clients go on.",
      "TARGET --via BALANCER",
      "TARGET, the server itself, reports itself not ready from now on (and is so until it is\n"
      "started anew) but serves on. Once the balancer sends a session's affinity key elsewhere,\n"
      "the session is exported, imported through the balancer under its key, and closed at\n"
      "TARGET. Its calls meanwhile wait: the client libraries repeat them, for 30 s.\n\n"
      "A row is a server that took sessions; below stand those that stay, and why: they are\n"
      "served at TARGET as before. It can be interrupted and run again, which moves what is left.\n"
      "With tokens, a tenant's sessions are moved, those of others stay.\n\n"
      "Exit code 0: no session is left, TARGET may be stopped. 1: some are left.\n\n"
      "Example\n"
      "  attnctl drain 10.0.0.7:8470 --via balancer:8470\n",
      flags,
      1,
      Run};
}

}  // namespace attnd::attnctl
