// The bench's result as text, JSON and CSV.
#include "client/attnctl/bench_report.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/attnctl/table.h"
#include "client/attnctl/units.h"

namespace attnd::attnctl {
namespace {

using nlohmann::ordered_json;

struct Percentile {
  const char* title;
  const char* key;
  double q;
};
constexpr std::array<Percentile, 4> kPercentiles = {
    {{"p50", "p50", 0.5}, {"p90", "p90", 0.9}, {"p99", "p99", 0.99}, {"p99.9", "p999", 0.999}}};

std::string Decimals(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

double Ms(double ns) { return ns * 1e-6; }
double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

void TimesRow(const std::string& name, const LatencyHistogram& times, Table* table) {
  std::vector<std::string> row = {name};
  for (const Percentile& percentile : kPercentiles) {
    row.push_back(Duration(static_cast<double>(times.QuantileNs(percentile.q))));
  }
  row.push_back(Duration(static_cast<double>(times.max_ns())));
  row.push_back(Duration(times.mean_ns()));
  table->Row(row);
}

ordered_json TimesJson(const LatencyHistogram& times) {
  ordered_json json;
  for (const Percentile& percentile : kPercentiles) {
    json[percentile.key] = Ms(static_cast<double>(times.QuantileNs(percentile.q)));
  }
  json["max"] = Ms(static_cast<double>(times.max_ns()));
  json["mean"] = Ms(times.mean_ns());
  return json;
}

// "a Decode of 4 sessions in each of 12 layers".
std::string RequestText(const BenchReport& report) {
  const BenchOptions& options = report.options;
  std::string text;
  if (options.mode == BenchMode::kPrefill) {
    text = "a Prefill of " + Count(options.prompt) + (options.prompt == 1 ? " row" : " rows");
  } else {
    text = std::string(options.mode == BenchMode::kSteps ? "a Decode step" : "a Decode") + " of " +
           Count(options.batch) + (options.batch == 1 ? " session" : " sessions");
  }
  return options.layers == "all"
             ? text + " in each of " + std::to_string(report.shape.layers.size()) + " layers"
             : text + " in layer " + options.layers;
}

std::string SessionsText(const BenchReport& report) {
  const BenchOptions& options = report.options;
  std::string text = Count(options.sessions);
  if (options.mode != BenchMode::kPrefill) {
    text += " of " + Count(options.prompt) + " to " + Count(options.prompt + report.shape.growth) +
            " rows";
  }
  return text + ", " + Count(options.concurrency) +
         (options.concurrency == 1 ? " request" : " requests") + " at a time at most";
}

std::string OutcomeText(const LoadCounts& counts) {
  std::string text = Count(counts.answered) + " answered, " + Count(counts.failed) + " failed, " +
                     Count(counts.late) + " sent late (by more than 1 ms)";
  if (counts.unstarted > 0) {
    text += ", " + Count(counts.unstarted) + " never sent: all lanes were busy";
  }
  return text;
}

}  // namespace

double BenchReport::requests_per_second() const {
  return result.AnsweredPerSecond(options.warm_up_ns, end_ns);
}

double BenchReport::rows_per_second() const {
  return requests_per_second() * static_cast<double>(shape.rows) *
         static_cast<double>(shape.layers.size());
}

std::string BenchText(const BenchReport& report) {
  const BenchOptions& options = report.options;
  const bool poisson = options.arrivals.kind == ArrivalOptions::Kind::kPoisson;
  List list;
  list.Item("model", report.model + " on " + report.device);
  list.Item("a request", RequestText(report));
  list.Item("sessions", SessionsText(report));
  list.Item("load", Decimals(options.arrivals.rate, 1) + "/s asked for, " +
                        (poisson ? "poisson, " : "constant, ") +
                        Decimals(Seconds(report.end_ns - options.warm_up_ns), 1) + " s after " +
                        Decimals(Seconds(options.warm_up_ns), 1) + " s of warm-up");
  list.Item("rate", Decimals(report.requests_per_second(), 1) + " requests/s, " +
                        Count(static_cast<int64_t>(report.rows_per_second())) +
                        " rows/s over all layers");
  list.Item("requests", OutcomeText(report.result.counts));
  for (const auto& [name, count] : report.result.errors) {
    list.Item("  " + name, Count(count));
  }
  Table table({"", "p50", "p90", "p99", "p99.9", "max", "mean"});
  TimesRow("latency, since due", report.result.latency, &table);
  TimesRow("service, since sent", report.result.service, &table);
  return list.ToString() + "\n" + table.ToString();
}

std::string BenchJson(const BenchReport& report) {
  const BenchOptions& options = report.options;
  const LoadCounts& counts = report.result.counts;
  ordered_json json = {
      {"target", report.target},
      {"model", report.model},
      {"device", report.device},
      {"mode", options.mode_name},
      {"layers", report.shape.layers},
      {"sessions", options.sessions},
      {"batch", options.batch},
      {"prompt", options.prompt},
      {"concurrency", options.concurrency},
      {"clients", options.clients},
      {"arrivals",
       options.arrivals.kind == ArrivalOptions::Kind::kPoisson ? "poisson" : "constant"},
      {"seed", options.arrivals.seed},
      {"rate", options.arrivals.rate},
      {"warm_up_s", Seconds(options.warm_up_ns)},
      {"duration_s", Seconds(report.end_ns - options.warm_up_ns)},
      {"interrupted", report.end_ns < options.end_ns()},
      {"due", counts.due},
      {"answered", counts.answered},
      {"failed", counts.failed},
      {"late", counts.late},
      {"unstarted", counts.unstarted},
      {"answered_per_s", report.requests_per_second()},
      {"rows_per_s", report.rows_per_second()},
      {"latency_ms", TimesJson(report.result.latency)},
      {"service_ms", TimesJson(report.result.service)},
      {"errors", ordered_json::object()}};
  for (const auto& [name, count] : report.result.errors) {
    json["errors"][name] = count;
  }
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void WriteBenchCsv(const BenchReport& report, std::ostream* out) {
  *out << "from_s,to_s,due,answered,failed,late,unstarted,p50_ms,p90_ms,p99_ms,p999_ms,max_ms,"
          "mean_ms\n";
  const double width = Seconds(report.options.interval_ns);
  for (size_t i = 0; i < report.result.intervals.size(); ++i) {
    const LoadInterval& interval = report.result.intervals[i];
    const double from = static_cast<double>(i) * width;
    *out << Decimals(from, 3) << "," << Decimals(from + width, 3) << "," << interval.counts.due
         << "," << interval.counts.answered << "," << interval.counts.failed << ","
         << interval.counts.late << "," << interval.counts.unstarted;
    for (const Percentile& percentile : kPercentiles) {
      *out << ","
           << Decimals(Ms(static_cast<double>(interval.latency.QuantileNs(percentile.q))), 3);
    }
    *out << "," << Decimals(Ms(static_cast<double>(interval.latency.max_ns())), 3) << ","
         << Decimals(Ms(interval.latency.mean_ns()), 3) << "\n";
  }
}

std::string BenchProgress(const BenchOptions& options, int64_t now_ns, const LoadResult& so_far) {
  const std::string time =
      Decimals(Seconds(now_ns), 1) + " of " + Decimals(Seconds(options.end_ns()), 1) + " s";
  if (now_ns < options.warm_up_ns) {
    return time + ", warming up";
  }
  return time + ", " + Decimals(so_far.AnsweredPerSecond(options.warm_up_ns, now_ns), 1) +
         "/s, p50 " + Duration(static_cast<double>(so_far.latency.QuantileNs(0.5))) + ", p99 " +
         Duration(static_cast<double>(so_far.latency.QuantileNs(0.99))) + ", " +
         Count(so_far.counts.failed) + " failed";
}

}  // namespace attnd::attnctl
