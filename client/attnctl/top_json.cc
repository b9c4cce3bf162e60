// A frame of attnctl top as JSON.
#include "client/attnctl/top_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace attnd::attnctl {
namespace {

using nlohmann::ordered_json;

ordered_json Finite(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

// A value that counts things, without decimals.
ordered_json Whole(double value) {
  return std::abs(value) < 1e18 ? ordered_json(static_cast<int64_t>(value)) : ordered_json(nullptr);
}

// Adds what `json` does not have yet, without the search for it that operator[] begins with.
void Append(const std::string& name, ordered_json value, ordered_json* json) {
  json->get_ref<ordered_json::object_t&>().emplace_back(name, std::move(value));
}

ordered_json Wholes(const std::map<std::string, double>& values) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, value] : values) {
    Append(name, Whole(value), &json);
  }
  return json;
}

ordered_json RateJson(const ServerView& view, double count) {
  return view.seconds > 0 ? Finite(view.PerSecond(count)) : ordered_json(nullptr);
}

ordered_json RatesJson(const ServerView& view, const std::map<std::string, double>& counts) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, count] : counts) {
    Append(name, RateJson(view, count), &json);
  }
  return json;
}

ordered_json TimesJson(const MetricHistogram& seconds) {
  ordered_json json;
  for (const auto& [key, q] : {std::pair("p50", 0.5), std::pair("p90", 0.9), std::pair("p99", 0.99),
                               std::pair("p999", 0.999)}) {
    json[key] = Finite(1e3 * seconds.Quantile(q));
  }
  json["mean"] = seconds.count > 0 ? Finite(1e3 * seconds.sum / seconds.count) : nullptr;
  return json;
}

template <typename Key>
MetricHistogram HistogramAt(const std::map<Key, MetricHistogram>& histograms, const Key& key) {
  const auto found = histograms.find(key);
  return found == histograms.end() ? MetricHistogram() : found->second;
}

ordered_json CallsJson(const ServerView& view) {
  ordered_json json = ordered_json::object();
  for (const auto& [method, calls] : view.counts.calls) {
    Append(method,
           {{"per_s", RateJson(view, calls)},
            {"failed_per_s", RateJson(view, view.counts.failed.at(method))},
            {"latency_ms", TimesJson(HistogramAt(view.counts.duration, method))}},
           &json);
  }
  return json;
}

ordered_json PhasesJson(const ServerView& view) {
  ordered_json json = ordered_json::object();
  auto& phases = json.get_ref<ordered_json::object_t&>();
  for (const auto& [key, tokens] : view.counts.tokens) {
    const MetricHistogram compute = HistogramAt(view.counts.compute, key);
    if (phases.empty() || phases.back().first != key.first) {  // the map has them in order
      phases.emplace_back(key.first, ordered_json::object());
    }
    Append(key.second,
           {{"tokens_per_s", RateJson(view, tokens)},
            {"steps_per_s", RateJson(view, compute.count)},
            {"queue_ms", TimesJson(HistogramAt(view.counts.queue, key))},
            {"compute_ms", TimesJson(compute)}},
           &phases.back().second);
  }
  return json;
}

// A batch has a row at least: within its first bucket a percentile cannot be less.
ordered_json RowsAt(const MetricHistogram& rows, double q) {
  const double value = rows.Quantile(q);
  return std::isnan(value) ? ordered_json(nullptr) : Finite(std::max(1.0, value));
}

ordered_json BatchesJson(const ServerView& view) {
  ordered_json json = ordered_json::object();
  for (const auto& [phase, rows] : view.counts.batch_rows) {
    Append(phase,
           {{"per_s", RateJson(view, rows.count)},
            {"rows_mean", rows.count > 0 ? Finite(rows.sum / rows.count) : nullptr},
            {"rows_p50", RowsAt(rows, 0.5)},
            {"rows_p99", RowsAt(rows, 0.99)}},
           &json);
  }
  return json;
}

// What a server and a total have.
ordered_json ViewJson(const ServerView& view) {
  const ServerGauges& gauges = view.gauges;
  return {{"seconds", view.seconds},
          {"cache",
           {{"capacity_bytes", Whole(gauges.capacity_bytes)},
            {"usage_ratio", Finite(gauges.UsageRatio())},
            {"used_bytes", Wholes(gauges.used_bytes)},
            {"reserved_bytes", Wholes(gauges.reserved_bytes)},
            {"rows", Wholes(gauges.rows)}}},
          {"sessions", Whole(gauges.sessions)},
          {"sessions_created_per_s", RateJson(view, view.counts.created)},
          {"sessions_ended_per_s", RatesJson(view, view.counts.ended)},
          {"queue_depth", Whole(gauges.queue_depth)},
          {"inflight_rpcs", Whole(gauges.inflight_rpcs)},
          {"inflight_bytes", Whole(gauges.inflight_bytes)},
          {"resident_bytes", Whole(gauges.resident_bytes)},
          {"cpus", RateJson(view, view.counts.cpu_seconds)},
          {"calls", CallsJson(view)},
          {"phases", PhasesJson(view)},
          {"batches", BatchesJson(view)},
          {"refused_per_s", RatesJson(view, view.counts.refused)}};
}

ordered_json ServerJson(const ServerView& view) {
  ordered_json json = {{"address", view.address}, {"reachable", view.status.ok()}};
  if (!view.status.ok()) {
    json["error"] = std::string(view.status.message());
    return json;
  }
  json["version"] = view.gauges.version;
  json["device"] = view.gauges.device;
  json["start_time"] = Finite(view.start_time);
  json["restarted"] = view.restarted;
  json["draining"] = view.gauges.draining > 0;
  json.update(ViewJson(view));
  return json;
}

}  // namespace

std::string TopJson(const TopFrame& frame) {
  ordered_json json = {{"time", frame.unix_time_s}, {"servers", ordered_json::array()}};
  for (const ServerView& view : frame.servers) {
    json["servers"].push_back(ServerJson(view));
  }
  json["total"] = ViewJson(Total(frame.servers));
  // Names of methods and reasons come from outside: what is not UTF-8 becomes U+FFFD.
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace attnd::attnctl
