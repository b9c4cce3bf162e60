// attnctl top: what servers do, live, from their /metrics.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <vector>

#include "client/attnctl/command.h"
#include "client/attnctl/metrics_fetch.h"
#include "client/attnctl/signal_watch.h"
#include "client/attnctl/terminal.h"
#include "client/attnctl/top_json.h"
#include "client/attnctl/top_lines.h"
#include "client/attnctl/top_rounds.h"
#include "core/text.h"

namespace attnd::attnctl {
namespace {

using Moment = std::chrono::steady_clock::time_point;

constexpr char kDefaultAddress[] = "127.0.0.1:9470";
constexpr double kShortestSeconds = 0.1;

struct TopOptions {
  std::vector<HttpTarget> targets;
  double interval_s = 0;
  bool once = false;
  bool json = false;

  std::chrono::nanoseconds interval() const {
    return std::chrono::nanoseconds(static_cast<int64_t>(interval_s * 1e9));
  }
};

absl::StatusOr<TopOptions> OptionsFrom(const Args& args) {
  TopOptions options;
  options.interval_s = args.Number("interval");
  options.once = args.Switch("once");
  options.json = args.Switch("json");
  if (options.interval_s < kShortestSeconds) {
    return UsageError("--interval: " + Quoted(args.Text("interval")) + "; expected at least 0.1");
  }
  const std::vector<std::string> words =
      args.words().empty() ? std::vector<std::string>{kDefaultAddress} : args.words();
  for (const std::string& word : words) {
    absl::StatusOr<HttpTarget> target = ParseHttpTarget(word);
    if (!target.ok()) {
      return UsageError(std::string(target.status().message()));
    }
    options.targets.push_back(*std::move(target));
  }
  return options;
}

TopFrame FrameOf(const TopOptions& options, std::vector<ServerView> servers) {
  TopFrame frame;
  frame.servers = std::move(servers);
  frame.interval_s = options.interval_s;
  frame.unix_time_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return frame;
}

int MsUntil(Moment moment) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(moment - Moment::clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

// The first time after now that is whole intervals behind `due`.
Moment NextDue(Moment due, std::chrono::nanoseconds interval) {
  const auto behind = Moment::clock::now() - due;
  return due + interval * std::max<int64_t>(1, behind / interval + 1);
}

// The first server that could not be read.
absl::Status FirstError(const std::vector<ServerView>& servers) {
  for (const ServerView& view : servers) {
    if (!view.status.ok()) {
      return absl::UnavailableError(view.address + ": " + std::string(view.status.message()));
    }
  }
  return absl::OkStatus();
}

bool NoneAnswers(const std::vector<ServerView>& servers) {
  return std::none_of(servers.begin(), servers.end(),
                      [](const ServerView& view) { return view.status.ok(); });
}

void Print(const TopOptions& options, const TopFrame& frame) {
  const std::string text = options.json ? TopJson(frame) + "\n"
                                        : PlainText(TopLines(frame)) + (options.once ? "" : "\n");
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Whether the round is complete; false: a signal came first.
bool Completed(const TopRounds& rounds, const SignalWatch& signals) {
  pollfd events[] = {{signals.fd(), POLLIN, 0}, {rounds.fd(), POLLIN, 0}};
  while (poll(events, 2, -1) < 0) {  // EINTR
  }
  return events[0].revents == 0;
}

// Ends at once: a server that answers slowly, of a round that nobody needs any more, is not waited
// for.
[[noreturn]] void LeaveRound() {
  std::fflush(stdout);
  _exit(0);
}

// A frame an interval, or one in all, until a signal comes. No control codes.
absl::Status Stream(const TopOptions& options, SignalWatch* signals) {
  TopRounds rounds(options.targets);
  const auto read = [&] {
    rounds.Begin();
    if (!Completed(rounds, *signals)) {
      LeaveRound();
    }
    return rounds.Take();
  };
  std::vector<ServerView> servers = read();
  if (options.once && NoneAnswers(servers)) {
    if (options.json) {
      Print(options, FrameOf(options, servers));
    }
    return FirstError(servers);
  }
  for (Moment due = Moment::clock::now() + options.interval();;
       due = NextDue(due, options.interval())) {
    if (signals->WaitMs(MsUntil(due)) != 0) {
      return absl::OkStatus();
    }
    servers = read();
    Print(options, FrameOf(options, servers));
    if (options.once) {
      return FirstError(servers);
    }
  }
}

// The live view, on a terminal.
class Live {
 public:
  Live(const TopOptions& options, SignalWatch* signals)
      : options_(options), signals_(signals), rounds_(options.targets) {}

  void Run() {
    const bool colour = WantsColour();
    Draw(colour);
    for (Moment due = Moment::clock::now(); !ended_; Draw(colour)) {
      if (!rounds_.under_way() && MsUntil(due) == 0) {
        rounds_.Begin();
        due = NextDue(due, options_.interval());
      }
      WaitForEvent(rounds_.under_way() ? -1 : MsUntil(due));
    }
    terminal_.Leave();
    if (rounds_.under_way()) {
      LeaveRound();
    }
  }

 private:
  void WaitForEvent(int ms) {
    pollfd events[] = {
        {signals_->fd(), POLLIN, 0}, {rounds_.fd(), POLLIN, 0}, {terminal_.key_fd(), POLLIN, 0}};
    if (poll(events, 3, ms) <= 0) {
      return;
    }
    if (events[0].revents != 0) {
      OnSignal(signals_->Take());
    }
    if (events[1].revents != 0) {
      lines_ = TopLines(FrameOf(options_, rounds_.Take()));
    }
    if ((events[2].revents & POLLIN) != 0) {
      const char key = terminal_.TakeKey();
      ended_ = ended_ || key == 'q' || key == 'Q';
    }
    ended_ = ended_ || (events[2].revents & (POLLHUP | POLLERR)) != 0;  // the terminal is gone
  }

  void OnSignal(int number) {
    if (number == SIGTSTP) {
      terminal_.Leave();
      kill(getpid(), SIGSTOP);  // goes on here after SIGCONT
      terminal_.Enter();
    } else if (number != SIGWINCH) {
      ended_ = true;
    }
  }

  void Draw(bool colour) {
    if (ended_) {
      return;
    }
    const Terminal::Size size = terminal_.size();
    terminal_.Draw(ScreenText(lines_, size.columns, size.rows, colour));
  }

  const TopOptions& options_;
  SignalWatch* const signals_;
  TopRounds rounds_;
  Terminal terminal_;
  std::vector<Line> lines_ = {{{"reading ... (q quits)", Ink::kDim}}};
  bool ended_ = false;
};

absl::Status Run(const Args& args) {
  const absl::StatusOr<TopOptions> options = OptionsFrom(args);
  if (!options.ok()) {
    return options.status();
  }
  const bool live = !options->once && !options->json && isatty(STDOUT_FILENO) == 1;
  if (!live) {
    SignalWatch signals({SIGINT, SIGTERM});
    return Stream(*options, &signals);
  }
  SignalWatch signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH});
  Live(*options, &signals).Run();
  return absl::OkStatus();
}

}  // namespace

Command TopCommand() {
  return {
      "top",
      "Shows live what servers do, from their /metrics.",
      "[ADDRESS ...]",
      "ADDRESS is the HTTP address of a server (attnd --http), HOST:PORT; default 127.0.0.1:9470. "
      "With\n"
      "several, each has a row, and their sum is shown at length.\n\n"
      "Rates and percentiles are those of the last interval: the difference between two readings. "
      "A\n"
      "percentile is linear within its bucket, as Prometheus has it. 'used' and 'reserved' are "
      "shares of\n"
      "the cache's budget; '#' is used, '-' reserved. A server that cannot be read is said to be "
      "so and\n"
      "asked again; after its restart its counts are those since then.\n\n"
      "On a terminal q or Ctrl-C ends it. Elsewhere a view an interval is printed, without control "
      "codes\n"
      "or colours (on a terminal NO_COLOR turns these off). --json prints a line an interval; "
      "times in it\n"
      "are milliseconds, and what was not measured is null. --once exits 1 when a server cannot be "
      "read.\n\n"
      "Examples\n"
      "  attnctl top\n"
      "  attnctl top 10.0.0.1:9470 10.0.0.2:9470 --interval 5\n"
      "  attnctl top --once --json\n",
      {{"interval", Flag::Kind::kNumber, "2", "seconds between two readings", 0, 86'400},
       {"once", Flag::Kind::kSwitch, "", "print one view over one interval and stop"},
       {"json", Flag::Kind::kSwitch, "", "print JSON, for scripts: a line an interval"}},
      256,
      Run};
}

}  // namespace attnd::attnctl
