// The bench's flags, checked against each other and against the model.
#include "client/attnctl/bench_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "client/attnctl/command.h"
#include "core/text.h"

namespace attnd::attnctl {
namespace {

constexpr int64_t kMaxGrowth = 32;
// 128 calls at a time is what a server takes on one connection.
constexpr int64_t kDefaultConcurrency = 64;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxIntervals = 100'000;

int64_t Ns(double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e9)); }

absl::Status BadValue(const std::string& flag, const std::string& value,
                      const std::string& expected) {
  return UsageError("--" + flag + ": " + Quoted(value) + "; expected " + expected);
}

absl::Status SetMode(const std::string& name, BenchOptions* options) {
  options->mode_name = name;
  if (name == "decode") {
    options->mode = BenchMode::kDecode;
  } else if (name == "steps") {
    options->mode = BenchMode::kSteps;
  } else if (name == "prefill") {
    options->mode = BenchMode::kPrefill;
  } else {
    return BadValue("mode", name, "decode, steps or prefill");
  }
  return absl::OkStatus();
}

absl::Status SetArrivals(const std::string& name, BenchOptions* options) {
  if (name != "poisson" && name != "constant") {
    return BadValue("arrivals", name, "poisson or constant");
  }
  options->arrivals.kind =
      name == "poisson" ? ArrivalOptions::Kind::kPoisson : ArrivalOptions::Kind::kConstant;
  return absl::OkStatus();
}

// Between flags.
absl::Status Check(const BenchOptions& options) {
  const std::string batch = std::to_string(options.batch);
  const std::string sessions = std::to_string(options.sessions);
  if (options.mode == BenchMode::kPrefill && options.batch != 1) {
    return BadValue("batch", batch, "1 with --mode prefill, whose calls name one session");
  }
  if (options.mode == BenchMode::kPrefill && options.prompt == 0) {
    return BadValue("prompt", "0", "at least 1 row with --mode prefill");
  }
  if (options.sessions % options.batch != 0) {
    return BadValue("sessions", sessions, "a multiple of --batch, which is " + batch);
  }
  if (options.clients > options.lanes()) {
    return BadValue("clients", std::to_string(options.clients),
                    "at most --sessions / --batch, which is " + std::to_string(options.lanes()));
  }
  if (options.duration_ns / options.interval_ns > kMaxIntervals) {
    return UsageError("--interval: --duration has more than " + std::to_string(kMaxIntervals) +
                      " of them");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> LayersOf(const std::string& text, int64_t count) {
  std::vector<int64_t> layers(static_cast<size_t>(count));
  std::iota(layers.begin(), layers.end(), 0);
  if (text == "all") {
    return layers;
  }
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
  if (error != std::errc() || end != text.data() + text.size() || layer < 0 || layer >= count) {
    return BadValue("layers", text, "all, or a layer from 0 to " + std::to_string(count - 1));
  }
  return std::vector<int64_t>{layer};
}

}  // namespace

std::vector<Flag> BenchFlags() {
  return {
      {"mode", Flag::Kind::kText, "decode",
       "decode (unary Decode), steps (Decode on Steps streams) or prefill (unary Prefill)"},
      {"rate", Flag::Kind::kNumber, "100", "requests due a second", 0, 1'000'000},
      {"arrivals", Flag::Kind::kText, "poisson",
       "poisson (independent users) or constant (equal gaps)"},
      {"duration", Flag::Kind::kNumber, "10", "seconds that are measured", 0, 86'400},
      {"warm_up", Flag::Kind::kNumber, "1", "seconds of the same load before them", 0, 3'600},
      {"sessions", Flag::Kind::kInt, "16", "sessions held", 1, 1'000'000},
      {"batch", Flag::Kind::kInt, "1", "sessions of one Decode, a row each", 1, 65'536},
      {"prompt", Flag::Kind::kInt, "128",
       "rows of each session before the load; with --mode prefill, of a request", 0, 1 << 24},
      {"layers", Flag::Kind::kText, "all",
       "a request goes through all layers, one call after another, or is one call to this layer"},
      {"concurrency", Flag::Kind::kInt, "",
       "requests under way at most (default: one for each --batch of sessions, at most " +
           std::to_string(kDefaultConcurrency) + ")",
       1, 4'096},
      {"clients", Flag::Kind::kInt, "1",
       "clients, each with an affinity key of its own: a balancer spreads them over its servers", 1,
       4'096},
      {"seed", Flag::Kind::kInt, "1", "of the arrivals and the rows"},
      {"max_errors", Flag::Kind::kInt, "0", "failed requests that are still exit code 0"},
      {"csv", Flag::Kind::kText, "", "writes a row an interval to this file"},
      {"interval", Flag::Kind::kNumber, "1", "seconds of a row of --csv", 0, 86'400},
  };
}

absl::StatusOr<BenchOptions> BenchOptionsFrom(const Args& args) {
  BenchOptions options;
  if (absl::Status status = SetMode(args.Text("mode"), &options); !status.ok()) {
    return status;
  }
  if (absl::Status status = SetArrivals(args.Text("arrivals"), &options); !status.ok()) {
    return status;
  }
  options.arrivals.rate = args.Number("rate");
  options.arrivals.seed = static_cast<uint64_t>(args.Int("seed"));
  options.layers = args.Text("layers");
  options.duration_ns = Ns(args.Number("duration"));
  options.warm_up_ns = Ns(args.Number("warm_up"));
  options.interval_ns = Ns(args.Number("interval"));
  for (const char* flag : {"rate", "duration", "interval"}) {
    if (args.Number(flag) < 1e-3) {
      return BadValue(flag, args.Text(flag), "at least 0.001");
    }
  }
  options.sessions = args.Int("sessions");
  options.batch = args.Int("batch");
  options.prompt = args.Int("prompt");
  options.clients = args.Int("clients");
  options.max_errors = args.Int("max_errors");
  options.csv = args.Has("csv") ? args.Text("csv") : "";
  if (absl::Status status = Check(options); !status.ok()) {
    return status;
  }
  const int64_t asked = args.Has("concurrency") ? args.Int("concurrency") : kDefaultConcurrency;
  options.concurrency = std::min(options.lanes(), asked);
  return options;
}

absl::StatusOr<BenchShape> BenchShapeFor(const BenchOptions& options, const v1::ModelInfo& model) {
  // Far beyond any model's, so that rows of nonsense are not made.
  if (model.d_model() < 1 || model.d_model() > kMaxWidth) {
    return absl::InternalError("GetModel: the server reports a width of " +
                               std::to_string(model.d_model()));
  }
  absl::StatusOr<std::vector<int64_t>> layers = LayersOf(options.layers, model.layers_size());
  if (!layers.ok()) {
    return layers.status();
  }
  BenchShape shape;
  shape.layers = *std::move(layers);
  shape.width = model.d_model();
  const bool prefill = options.mode == BenchMode::kPrefill;
  shape.rows = prefill ? options.prompt : options.batch;
  shape.growth = prefill ? 0 : std::clamp<int64_t>(model.max_rewind(), 1, kMaxGrowth);
  const int64_t longest = model.max_seq_len() - shape.growth;
  if (options.prompt > longest) {
    return BadValue("prompt", std::to_string(options.prompt),
                    "at most " + std::to_string(longest) + " rows, which the model has room for");
  }
  return shape;
}

}  // namespace attnd::attnctl
