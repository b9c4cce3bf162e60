// attnctl bench: an open-loop load on a server or a balancer.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <future>
#include <utility>

#include "client/attnctl/bench_lanes.h"
#include "client/attnctl/bench_options.h"
#include "client/attnctl/bench_report.h"
#include "client/attnctl/command.h"
#include "client/attnctl/connect.h"
#include "client/attnctl/signal_watch.h"
#include "client/attnctl/steady_clock.h"
#include "client/attnctl/units.h"
#include "client/cpp/error.h"

namespace attnd::attnctl {
namespace {

constexpr std::chrono::milliseconds kTick{250};

// A line on stderr, where that is a terminal, drawn over the one before.
class StatusLine {
 public:
  ~StatusLine() { Show(""); }
  void Show(const std::string& text) {
    if (visible_) {
      std::fprintf(stderr, "\r\033[K%s", text.c_str());
    }
  }

 private:
  const bool visible_ = isatty(STDERR_FILENO) == 1;
};

// Signals, and whether one has come.
struct Interrupt {
  SignalWatch watch{SIGINT, SIGTERM};
  bool came = false;
};

// Runs `work` on another thread and watches: `tick` shows how far it is, `stop` ends it early at
// the first signal. A second signal ends the process.
template <typename Work, typename Tick, typename Stop>
void Watch(Interrupt* interrupt, const Work& work, const Tick& tick, const Stop& stop) {
  std::future<void> done = std::async(std::launch::async, work);
  while (done.wait_for(kTick) != std::future_status::ready) {
    if (const int number = interrupt->watch.Take(); number != 0) {
      if (interrupt->came) {
        _exit(128 + number);
      }
      interrupt->came = true;
      stop();
    }
    tick();
  }
  done.get();
}

absl::StatusOr<std::vector<std::unique_ptr<client::Client>>> ConnectAll(const Args& args,
                                                                        int64_t count) {
  std::vector<std::unique_ptr<client::Client>> clients;
  for (int64_t i = 0; i < count; ++i) {
    auto client = ConnectFrom(args);
    if (!client.ok()) {
      return client.status();
    }
    clients.push_back(*std::move(client));
  }
  return clients;
}

// The load itself; fills the report.
void RunLoad(Interrupt* interrupt, BenchLanes* lanes, StatusLine* line, BenchReport* report) {
  const BenchOptions& options = report->options;
  LoadRecorder recorder(options.warm_up_ns, options.csv.empty() ? 0 : options.interval_ns);
  SteadyClock clock;
  OpenLoop loop(options.arrivals, options.warm_up_ns, options.end_ns(), &clock, lanes, &recorder);
  Watch(
      interrupt, [&] { loop.Run(static_cast<int>(options.concurrency)); },
      [&] {
        line->Show("bench: " + BenchProgress(options, clock.NowNs(), recorder.ResultSoFar()));
      },
      [&] { loop.Stop(); });
  report->end_ns = loop.end_ns();
  report->result = recorder.Result();
}

// `status` with what was done when it came about.
absl::Status While(const std::string& doing, const absl::Status& status) {
  client::Error error = client::ErrorOf(status);
  error.message = doing + ": " + error.message;
  return status.ok() || IsUsageError(status) ? status : client::ToStatus(error);
}

// Sessions, load, and the sessions' end, whatever comes between. The status is that of making and
// closing the sessions.
absl::Status RunBench(Interrupt* interrupt, BenchLanes* lanes, BenchReport* report) {
  StatusLine line;
  absl::Status opened, closed;
  const std::string sessions = " of " + Count(report->options.sessions) + " sessions";
  Watch(
      interrupt, [&] { opened = lanes->Open(); },
      [&] { line.Show("bench: made " + Count(lanes->opened()) + sessions); },
      [&] { lanes->Stop(); });
  if (opened.ok() && !interrupt->came) {
    RunLoad(interrupt, lanes, &line, report);
  }
  Watch(
      interrupt, [&] { closed = lanes->Close(); },
      [&] { line.Show("bench: closing the sessions"); }, [] {});
  opened = While("making the sessions", opened);
  opened.Update(While("closing the sessions", closed));
  return opened;
}

absl::Status Verdict(const BenchReport& report, bool interrupted, const absl::Status& sessions) {
  if (interrupted) {
    return absl::CancelledError("interrupted");
  }
  if (!sessions.ok()) {
    return sessions;
  }
  const int64_t failed = report.result.counts.failed;
  return failed <= report.options.max_errors
             ? absl::OkStatus()
             : absl::UnavailableError("failed requests: " + Count(failed) + "; --max_errors is " +
                                      Count(report.options.max_errors));
}

absl::Status Say(const Args& args, const BenchReport& report, std::ofstream* csv) {
  std::fputs((args.Switch("json") ? BenchJson(report) : BenchText(report)).c_str(), stdout);
  if (report.options.csv.empty()) {
    return absl::OkStatus();
  }
  WriteBenchCsv(report, csv);
  csv->close();
  return csv->good() ? absl::OkStatus()
                     : absl::DataLossError("--csv: " + report.options.csv + " was not written");
}

absl::Status Run(const Args& args) {
  const absl::StatusOr<BenchOptions> options = BenchOptionsFrom(args);
  if (!options.ok()) {
    return options.status();
  }
  std::ofstream csv;
  if (!options->csv.empty()) {
    csv.open(options->csv);
    if (!csv) {
      return UsageError("--csv: " + options->csv + " cannot be written");
    }
  }
  Interrupt interrupt;  // before the client library's threads
  auto clients = ConnectAll(args, options->clients);
  if (!clients.ok()) {
    return clients.status();
  }
  const absl::StatusOr<v1::ModelInfo> model = clients->front()->Model();
  if (!model.ok()) {
    return model.status();
  }
  absl::StatusOr<BenchShape> shape = BenchShapeFor(*options, *model);
  if (!shape.ok()) {
    return shape.status();
  }
  BenchReport report = {*options, *shape, args.Text("target"), model->name(), model->device(),
                        0,        {}};
  BenchLanes lanes(*options, *shape, *std::move(clients));
  const absl::Status sessions = RunBench(&interrupt, &lanes, &report);
  if (report.end_ns > options->warm_up_ns) {
    if (absl::Status said = Say(args, report, &csv); !said.ok()) {
      return said;
    }
  }
  return Verdict(report, interrupt.came, sessions);
}

}  // namespace

Command BenchCommand() {
  std::vector<Flag> flags = ServerFlags(BenchFlags());
  return {
      "bench",
      "Puts a load of a given rate on a server and measures its latencies.",
      "",
      "Requests are due at times that are fixed beforehand, whatever the server does (an open "
      "loop).\n"
      "A request's latency counts from when it was due: while a server stalls, those that cannot "
      "be sent\n"
      "wait, and their wait counts. Its service time counts from when it was sent; where the two "
      "differ,\n"
      "the load was more than the server, --sessions or --concurrency allowed. Failed requests are "
      "counted\n"
      "by code and reason and are in no percentile; what was never sent is in those of the latency "
      "with the\n"
      "time that it waited. Calls are repeated as the client library does (of --mode steps none), "
      "in the\n"
      "request's time. Percentiles are rounded up by less than 0.8 %, the maximum is "
      "exact.\n\n"
      "A request is a call to one layer, or one to each (--layers). Every --batch of sessions "
      "serves one\n"
      "request at a time. Sessions are cut back to --prompt rows as they grow, so that a longer "
      "run is not\n"
      "a slower one, and are closed at the end, also after Ctrl-C (a second one ends at once).\n\n"
      "Exit code 1 when more than --max_errors requests failed, or when interrupted.\n\n"
      "Examples\n"
      "  attnctl bench --rate 200 --sessions 64 --duration 30\n"
      "  attnctl bench --mode steps --batch 16 --sessions 256 --layers 0 --rate 1000 --csv "
      "out.csv\n"
      "  attnctl bench --mode prefill --prompt 1024 --rate 2 --arrivals constant --json\n"
      "  attnctl bench --target balancer:8470 --clients 40 --sessions 400\n",
      std::move(flags),
      0,
      Run};
}

}  // namespace attnd::attnctl
