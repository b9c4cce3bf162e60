// A frame of attnctl top as lines.
#include "client/attnctl/top_lines.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <sstream>
#include <utility>

#include "client/attnctl/shown.h"
#include "client/attnctl/table.h"
#include "client/attnctl/units.h"

namespace attnd::attnctl {
namespace {

constexpr size_t kBarWidth = 40;
constexpr double kPercentiles[] = {0.5, 0.9, 0.99, 0.999};

// What counts things; "-" where a server says no number, or one out of all proportion.
std::string Whole(double value) {
  return std::abs(value) < 1e18 ? Count(std::llround(value)) : "-";
}

// Up to 10 with a decimal: "0.3", "9.8", "1,234".
std::string Rate(double per_second) {
  if (per_second < 9.95) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f", per_second);
    return text;
  }
  return Whole(per_second);
}

std::string RateOf(const ServerView& view, double count) {
  return view.seconds > 0 ? Rate(view.PerSecond(count)) : "-";
}

std::string Time(double seconds) { return std::isnan(seconds) ? "-" : Duration(seconds * 1e9); }

std::string TimeOf(const MetricHistogram& histogram, double q) {
  return Time(histogram.Quantile(q));
}

template <typename Map>
double SumOf(const Map& values) {
  double sum = 0;
  for (const auto& [key, value] : values) {
    sum += value;
  }
  return sum;
}

double At(const std::map<std::string, double>& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? 0 : found->second;
}

// "3 h 12 min", "45 s".
std::string Age(double seconds) {
  if (!(std::abs(seconds) < 1e12)) {
    return "for an unknown time";
  }
  const auto s = static_cast<int64_t>(std::max(0.0, seconds));
  const auto two = [](int64_t big, const char* unit, int64_t small, const char* small_unit) {
    return std::to_string(big) + unit + std::to_string(small) + small_unit;
  };
  return s < 60      ? std::to_string(s) + " s"
         : s < 3600  ? two(s / 60, " min ", s % 60, " s")
         : s < 86400 ? two(s / 3600, " h ", s / 60 % 60, " min")
                     : two(s / 86400, " d ", s / 3600 % 24, " h");
}

std::string Clock(double unix_time_s) {
  const auto time = static_cast<time_t>(unix_time_s);
  tm parts = {};
  localtime_r(&time, &parts);
  char text[16];
  std::strftime(text, sizeof(text), "%H:%M:%S", &parts);
  return text;
}

void AddText(const std::string& text, Ink first, std::vector<Line>* lines) {
  std::istringstream split(text);
  Ink ink = first;
  for (std::string line; std::getline(split, line); ink = Ink::kPlain) {
    lines->push_back({{line, ink}});
  }
}

// '#' for what is used, '-' for what is reserved beside it.
Line Bar(const std::string& name, double used, double reserved, double capacity) {
  const auto cells = [capacity](double bytes) {
    const double share = bytes / capacity;  // of a capacity of 0, and of no number, nothing
    return capacity > 0 && share > 0
               ? static_cast<size_t>(std::lround(std::min(share, 1.0) * kBarWidth))
               : size_t{0};
  };
  const size_t full = cells(used);
  const size_t taken = std::max(full, cells(used + reserved));
  const double ratio = capacity > 0 ? (used + reserved) / capacity : 0;
  const Ink ink = ratio < 0.8 ? Ink::kGood : ratio < 0.95 ? Ink::kWarning : Ink::kBad;
  std::string label = "  " + Shown(name);
  label.resize(10, ' ');
  std::string percent = Percent(ratio);
  percent.insert(0, percent.size() < 8 ? 8 - percent.size() : 0, ' ');
  return {{label + "[", Ink::kPlain},
          {std::string(full, '#'), ink},
          {std::string(taken - full, '-'), ink},
          {std::string(kBarWidth - taken, ' ') + "]" + percent + "  ", Ink::kPlain},
          {Bytes(used) + (reserved > 0 ? " + " + Bytes(reserved) + " reserved" : ""), Ink::kPlain}};
}

void AddCache(const ServerView& view, std::vector<Line>* lines) {
  const ServerGauges& g = view.gauges;
  lines->push_back(
      {{"cache", Ink::kTitle},
       {"     " + Bytes(g.capacity_bytes) + ", rows held: " + Whole(At(g.rows, "global")) +
            " global, " + Whole(At(g.rows, "local")) + " local",
        Ink::kPlain}});
  lines->push_back(Bar("all", g.UsedBytes(), g.ReservedBytes(), g.capacity_bytes));
  for (const auto& [kind, used] : g.used_bytes) {
    lines->push_back(Bar(kind, used, At(g.reserved_bytes, kind), g.capacity_bytes));
  }
}

void AddLoad(const ServerView& view, std::vector<Line>* lines) {
  const ServerGauges& g = view.gauges;
  const ServerCounts& c = view.counts;
  std::string ended;
  for (const auto& [reason, count] : c.ended) {
    ended += ", " + RateOf(view, count) + " " + reason;
  }
  char cores[32];
  std::snprintf(cores, sizeof(cores), "%.2f", view.PerSecond(c.cpu_seconds));
  lines->push_back(
      {{"sessions", Ink::kTitle},
       {"  " + Whole(g.sessions) + "; a second " + RateOf(view, c.created) + " created" + ended,
        Ink::kPlain}});
  lines->push_back({{"queue", Ink::kTitle},
                    {"     " + Whole(g.queue_depth) + " steps; " + Whole(g.inflight_rpcs) +
                         " requests and " + Bytes(g.inflight_bytes) + " under way",
                     Ink::kPlain}});
  lines->push_back({{"process", Ink::kTitle},
                    {"   " + Bytes(g.resident_bytes) + " resident, " +
                         (view.seconds > 0 ? cores : "-") + " CPUs",
                     Ink::kPlain}});
}

// The methods that were called, each with its rate and percentiles.
void AddCalls(const ServerView& view, std::vector<Line>* lines) {
  Table table({"calls", "/s", "failed/s", "p50", "p90", "p99", "p99.9"});
  for (const auto& [method, calls] : view.counts.calls) {
    if (calls <= 0) {
      continue;
    }
    std::vector<std::string> row = {"  " + method, RateOf(view, calls),
                                    RateOf(view, At(view.counts.failed, method))};
    const auto found = view.counts.duration.find(method);
    for (const double q : kPercentiles) {
      row.push_back(found == view.counts.duration.end() ? "-" : TimeOf(found->second, q));
    }
    table.Row(row);
  }
  AddText(table.ToString(), Ink::kTitle, lines);
}

const MetricHistogram& HistogramAt(const std::map<PhaseAndKind, MetricHistogram>& histograms,
                                   const PhaseAndKind& key) {
  static const MetricHistogram kNone;
  const auto found = histograms.find(key);
  return found == histograms.end() ? kNone : found->second;
}

void AddPhases(const ServerView& view, std::vector<Line>* lines) {
  Table table({"phases", "tokens/s", "steps/s", "queue p50", "p99", "compute p50", "p99"});
  for (const auto& [key, tokens] : view.counts.tokens) {
    const MetricHistogram& queue = HistogramAt(view.counts.queue, key);
    const MetricHistogram& compute = HistogramAt(view.counts.compute, key);
    table.Row({"  " + key.first + " " + key.second, RateOf(view, tokens),
               RateOf(view, compute.count), TimeOf(queue, 0.5), TimeOf(queue, 0.99),
               TimeOf(compute, 0.5), TimeOf(compute, 0.99)});
  }
  AddText(table.ToString(), Ink::kTitle, lines);
}

std::string RowsOf(const MetricHistogram& rows, double q) {
  const double value = rows.Quantile(q);
  return std::isnan(value) ? "-" : Whole(std::ceil(value));
}

void AddBatches(const ServerView& view, std::vector<Line>* lines) {
  Table table({"batches", "/s", "rows, mean", "p50", "p99"});
  for (const auto& [phase, rows] : view.counts.batch_rows) {
    table.Row({"  " + phase, RateOf(view, rows.count),
               rows.count > 0 ? Rate(rows.sum / rows.count) : "-", RowsOf(rows, 0.5),
               RowsOf(rows, 0.99)});
  }
  AddText(table.ToString(), Ink::kTitle, lines);
}

void AddRefusals(const ServerView& view, std::vector<Line>* lines) {
  std::string text;
  for (const auto& [reason, count] : view.counts.refused) {
    if (count > 0) {
      text += (text.empty() ? "" : ", ") + RateOf(view, count) + " " + reason;
    }
  }
  lines->push_back({{"refusals", Ink::kTitle},
                    {"  a second: ", Ink::kPlain},
                    text.empty() ? Words{view.seconds > 0 ? "none" : "-", Ink::kPlain}
                                 : Words{text, Ink::kWarning}});
}

void AddView(const ServerView& view, std::vector<Line>* lines) {
  AddCache(view, lines);
  lines->push_back({});
  AddLoad(view, lines);
  AddRefusals(view, lines);
  lines->push_back({});
  AddCalls(view, lines);
  lines->push_back({});
  AddPhases(view, lines);
  lines->push_back({});
  AddBatches(view, lines);
}

Line StateLine(const ServerView& view, double unix_time_s) {
  if (!view.status.ok()) {
    return {{view.address, Ink::kTitle},
            {"  unreachable: " + std::string(view.status.message()), Ink::kBad}};
  }
  Line line = {{view.address, Ink::kTitle},
               {"  " + view.gauges.version + " on " + view.gauges.device + ", up " +
                    Age(unix_time_s - view.start_time),
                Ink::kPlain}};
  if (view.gauges.draining > 0) {
    line.push_back({"  draining", Ink::kWarning});
  }
  if (view.restarted) {
    line.push_back({"  restarted", Ink::kWarning});
  }
  return line;
}

// The latency of decodes, unary and on streams.
MetricHistogram DecodeTimes(const ServerView& view) {
  MetricHistogram both;
  for (const char* method : {"Decode", "Steps.Decode"}) {
    const auto found = view.counts.duration.find(method);
    if (found != view.counts.duration.end()) {
      both.Add(found->second);
    }
  }
  return both;
}

void AddServers(const TopFrame& frame, std::vector<Line>* lines) {
  Table table({"server", "cache", "sessions", "queue", "calls/s", "tokens/s", "refused/s",
               "decode p50", "p99", "resident"});
  for (const ServerView& view : frame.servers) {
    if (!view.status.ok()) {
      continue;
    }
    const MetricHistogram decode = DecodeTimes(view);
    table.Row({"  " + view.address, Percent(view.gauges.UsageRatio()), Whole(view.gauges.sessions),
               Whole(view.gauges.queue_depth), RateOf(view, SumOf(view.counts.calls)),
               RateOf(view, SumOf(view.counts.tokens)), RateOf(view, SumOf(view.counts.refused)),
               TimeOf(decode, 0.5), TimeOf(decode, 0.99), Bytes(view.gauges.resident_bytes)});
  }
  AddText(table.ToString(), Ink::kTitle, lines);
  for (const ServerView& view : frame.servers) {
    if (!view.status.ok() || view.restarted || view.gauges.draining > 0) {
      Line line = StateLine(view, frame.unix_time_s);
      line.insert(line.begin(), {"  ", Ink::kPlain});
      lines->push_back(std::move(line));
    }
  }
}

const char* Escape(Ink ink) {
  switch (ink) {
    case Ink::kTitle:
      return "\033[1m";
    case Ink::kDim:
      return "\033[2m";
    case Ink::kGood:
      return "\033[32m";
    case Ink::kWarning:
      return "\033[33m";
    case Ink::kBad:
      return "\033[31m";
    case Ink::kPlain:
      break;
  }
  return "";
}

std::vector<Line> AllLines(const TopFrame& frame) {
  std::vector<Line> lines;
  const bool one = frame.servers.size() == 1;
  char every[32];
  std::snprintf(every, sizeof(every), "every %g s", frame.interval_s);
  const Words when = {"  " + Clock(frame.unix_time_s) + ", " + every, Ink::kDim};
  if (one) {
    lines.push_back(StateLine(frame.servers[0], frame.unix_time_s));
    lines.back().push_back(when);
    if (frame.servers[0].status.ok()) {
      lines.push_back({});
      AddView(frame.servers[0], &lines);
    }
    return lines;
  }
  const ServerView total = Total(frame.servers);
  lines.push_back({{total.address, Ink::kTitle}, when});
  lines.push_back({});
  AddServers(frame, &lines);
  lines.push_back({});
  AddView(total, &lines);
  return lines;
}

}  // namespace

std::vector<Line> TopLines(const TopFrame& frame) {
  std::vector<Line> lines = AllLines(frame);
  for (Line& line : lines) {
    for (Words& words : line) {
      words.text = Shown(words.text);  // versions, devices and labels are the servers' words
    }
  }
  return lines;
}

std::string PlainText(const std::vector<Line>& lines) {
  std::string text;
  for (const Line& line : lines) {
    for (const Words& words : line) {
      text += words.text;
    }
    text += "\n";
  }
  return text;
}

std::string ScreenText(const std::vector<Line>& lines, size_t columns, size_t rows, bool colour) {
  std::vector<Line> shown(lines.begin(), lines.begin() + std::min(rows, lines.size()));
  if (!shown.empty() && shown.size() < lines.size()) {
    const size_t more = lines.size() - rows + 1;
    shown.back() = {{"... " + std::to_string(more) + " more lines: enlarge the window", Ink::kDim}};
  }
  std::string text;
  for (const Line& line : shown) {
    text += &line == &shown.front() ? "" : "\n";
    size_t left = columns;
    for (const Words& words : line) {
      const std::string part = words.text.substr(0, left);
      const std::string escape = colour && !part.empty() ? Escape(words.ink) : "";
      text += escape + part + (escape.empty() ? "" : "\033[0m");
      left -= part.size();
    }
  }
  return text;
}

}  // namespace attnd::attnctl
