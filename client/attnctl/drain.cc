// attnctl drain: a server is emptied, its sessions go where a balancer sends their keys.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "client/attnctl/command.h"
#include "client/attnctl/connect.h"
#include "client/attnctl/drain_report.h"
#include "client/attnctl/progress_bar.h"
#include "client/attnctl/signal_watch.h"
#include "client/attnctl/units.h"
#include "client/cpp/drain.h"

namespace attnd::attnctl {
namespace {

using client::DrainedSession;
using Outcome = DrainedSession::Outcome;
using Groups = std::vector<std::vector<v1::Session>>;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStopPoll{50};

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

  void Say(const std::string& text) { bar_.Say(text); }

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

// The groups of a round that have yet to move, each with the time when its key is asked about.
// Thread-safe.
class Waiting {
 public:
  struct Item {
    const std::vector<v1::Session>* group = nullptr;
    Clock::time_point due;
  };

  explicit Waiting(const Groups& groups) {
    for (const auto& group : groups) {
      items_.push_back({&group, Clock::now()});
    }
  }
  void Push(Item item) {
    const std::lock_guard<std::mutex> lock(mutex_);
    items_.push_back(item);
  }
  // A null group when there is none.
  Item Pop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (items_.empty()) {
      return {};
    }
    const Item item = items_.front();
    items_.pop_front();
    return item;
  }

 private:
  std::mutex mutex_;
  std::deque<Item> items_;
};

// Whether the time has come before the drain was stopped.
bool SleepUntil(const client::Drain& drain, Clock::time_point due) {
  while (!drain.stopped() && Clock::now() < due) {
    std::this_thread::sleep_for(std::min<Clock::duration>(due - Clock::now(), kStopPoll));
  }
  return !drain.stopped();
}

// One try of every session that is there. A key that still leads here lets the others pass.
class Round {
 public:
  Round(client::Drain& drain, const Groups& groups, DrainReport* report)
      : drain_(drain), progress_(groups), waiting_(groups), report_(report) {}

  void Say(const std::string& text) { progress_.Say(text); }

  void Run(size_t count) {
    std::vector<std::thread> threads;
    for (size_t i = 1; i < count; ++i) {
      threads.emplace_back([this] { Work(); });
    }
    Work();
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

 private:
  void Work() {
    for (Waiting::Item item = waiting_.Pop(); item.group != nullptr; item = waiting_.Pop()) {
      if (!SleepUntil(drain_, item.due)) {
        return;
      }
      const auto wait = drain_.Wait(item.group->front().affinity_key());
      if (!wait.ok()) {
        Stay(*item.group, wait.status());
      } else if (wait->count() > 0) {
        waiting_.Push({item.group, Clock::now() + *wait});
      } else {
        int64_t last = 0;
        drain_.Move(*item.group, progress_.Part(&last), [&](const DrainedSession& session) {
          Note(session);
          last = 0;
        });
      }
    }
  }

  void Stay(const std::vector<v1::Session>& group, const absl::Status& status) {
    for (const v1::Session& session : group) {
      DrainedSession stays;
      stays.session_id = session.session_id();
      stays.affinity_key = session.affinity_key();
      stays.status = status;
      Note(stays);
    }
  }

  void Note(const DrainedSession& session) {
    const std::lock_guard<std::mutex> lock(mutex_);
    report_->sessions[session.session_id] = session;
  }

  client::Drain& drain_;
  RoundProgress progress_;
  Waiting waiting_;
  std::mutex mutex_;
  DrainReport* const report_;  // guarded by mutex_
};

// Stops a drain upon Ctrl-C; a second one ends the tool at once.
class StopOnSignal {
 public:
  StopOnSignal(SignalWatch& signals, client::Drain& drain)
      : thread_([this, &signals, &drain] {
          while (!over_) {
            const int signal = signals.WaitMs(static_cast<int>(kStopPoll.count()));
            if (signal != 0 && signal_ != 0) {
              std::_Exit(128 + signal);
            }
            if (signal != 0) {
              signal_ = signal;
              drain.Stop();
            }
          }
        }) {}
  ~StopOnSignal() {
    over_ = true;
    thread_.join();
  }
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  // The signal that came; 0: none.
  int signal() const { return signal_; }

 private:
  std::atomic<bool> over_ = false;
  std::atomic<int> signal_ = 0;
  std::thread thread_;  // after what it uses
};

bool HasKeys(const Groups& groups) {
  return std::any_of(groups.begin(), groups.end(), [](const std::vector<v1::Session>& group) {
    return !group.front().affinity_key().empty();
  });
}

// Tries, until nothing is left or no try is.
absl::Status Empty(const Args& args, client::Client& source, client::Drain& drain,
                   DrainReport* report) {
  for (int64_t round = 0; round < args.Int("tries") && !drain.stopped(); ++round) {
    const absl::StatusOr<Groups> left = drain.Left();
    if (!left.ok()) {
      return left.status();
    }
    if (left->empty()) {
      break;
    }
    if (round > 0 && !SleepUntil(drain, Clock::now() + std::chrono::seconds(1))) {
      break;  // else: those that came, and those that failed
    }
    Round moves(drain, *left, report);
    if (round == 0 && HasKeys(*left)) {
      moves.Say("waiting until " + args.Text("via") + " sends its keys elsewhere ...");
    }
    moves.Run(std::min(static_cast<size_t>(args.Int("parallel")), left->size()));
  }
  const absl::StatusOr<v1::Stats> stats = source.Stats();
  if (!stats.ok()) {
    return stats.status();
  }
  report->left = stats->sessions();
  return absl::OkStatus();
}

std::string AreLeft(const Args& args, const DrainReport& report) {
  return Count(report.left) + (report.left == 1 ? " session is at " : " sessions are at ") +
         args.words()[0] + " yet";
}

absl::Status Begin(client::Drain& drain) {
  const absl::Status status = drain.Begin();
  if (status.code() == absl::StatusCode::kFailedPrecondition &&
      client::ErrorOf(status).reason.empty()) {
    return absl::FailedPreconditionError(std::string(status.message()) +
                                         " (--force drains it all the same)");
  }
  return status;
}

absl::Status Run(const Args& args) {
  if (args.words().size() != 1 || !args.Has("via")) {
    return UsageError("expected 'TARGET --via BALANCER'");
  }
  SignalWatch signals({SIGINT, SIGTERM});
  const auto source = ConnectTo(args, args.words()[0]);
  if (!source.ok()) {
    return source.status();
  }
  const auto balancer = ConnectTo(args, args.Text("via"));
  if (!balancer.ok()) {
    return balancer.status();
  }
  client::DrainOptions options;
  options.route_wait = std::chrono::seconds(args.Int("route_wait_s"));
  options.settle = std::chrono::milliseconds(args.Int("settle_ms"));
  options.force = args.Switch("force");
  client::Drain drain(**source, **balancer, options);
  const StopOnSignal stop(signals, drain);
  const auto start = Clock::now();
  if (absl::Status status = Begin(drain); !status.ok()) {
    return stop.signal() != 0 ? Interrupted(stop.signal(), "interrupted") : status;
  }
  DrainReport report;
  report.server_id = drain.server_id();
  if (absl::Status status = Empty(args, **source, drain, &report); !status.ok()) {
    return status;
  }
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::fputs((args.Switch("json") ? Json(report) : Text(report)).c_str(), stdout);
  if (stop.signal() != 0) {
    return Interrupted(stop.signal(), "interrupted: " + Count(report.Number(Outcome::kMoved)) +
                                          " moved, " + AreLeft(args, report) +
                                          "; the drain can be run again");
  }
  const int64_t failed = report.Number(Outcome::kFailed);
  if (failed == 0 && report.left == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      AreLeft(args, report) + (report.left > failed ? ", some of other tenants or new ones" : "") +
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
       "pause before a key's sessions move, for calls that are on their way to TARGET", 0, 600'000},
      {"force", Flag::Kind::kSwitch, "",
       "drain though no other server answers through --via: TARGET is not ready, its sessions "
       "stay"},
  });
  std::erase_if(flags, [](const Flag& flag) { return flag.name == "target"; });
  return {
      "drain",
      "Empties a server: its sessions move elsewhere while their clients go on.",
      "TARGET --via BALANCER",
      "Another server must answer through BALANCER, or nothing is changed (see --force). Then\n"
      "TARGET, the server itself, reports itself not ready (and is so until it is started anew)\n"
      "but serves on. Once the balancer sends a session's affinity key elsewhere,\n"
      "the session is exported, imported through the balancer under its key, and closed at\n"
      "TARGET. Its calls meanwhile wait: the client libraries repeat them, for 30 s.\n\n"
      "A row is a server that took sessions; below stand those that stay, and why: they are\n"
      "served at TARGET as before. It can be interrupted (Ctrl-C; what is on its way then stays)\n"
      "and run again, which moves what is left.\n"
      "With tokens, a tenant's sessions are moved, those of others stay.\n\n"
      "Exit code 0: no session is left, TARGET may be stopped. 1: some are left,\n"
      "or nothing was changed. 130: interrupted.\n\n"
      "Example\n"
      "  attnctl drain 10.0.0.7:8470 --via balancer:8470\n",
      flags,
      1,
      Run};
}

}  // namespace attnd::attnctl
