// attnctl demo: a session through every layer of a running server, timed and checked.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "client/attnctl/command.h"
#include "client/attnctl/connect.h"
#include "client/attnctl/demo_check.h"
#include "client/attnctl/demo_run.h"
#include "client/attnctl/table.h"
#include "client/attnctl/units.h"

namespace attnd::attnctl {
namespace {

// What one kind of layers did in one phase.
struct PhaseFigures {
  std::vector<double> client_ns;
  std::vector<double> compute_ns;
  int64_t rows = 0;  // of a call
};

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(q * last + 0.5)];
}

PhaseFigures Collect(const v1::ModelInfo& model, v1::LayerKind kind, bool decode,
                     const DemoRun& run) {
  PhaseFigures figures;
  figures.rows = decode ? 1 : run.shape.prefill_rows;
  const auto& client = decode ? run.times.decode_ns : run.times.prefill_ns;
  const auto& compute = decode ? run.times.decode_compute_ns : run.times.prefill_compute_ns;
  for (size_t i = 0; i < client.size(); ++i) {
    const auto layer = static_cast<int>(i % static_cast<size_t>(run.shape.layers));
    if (model.layers(layer) == kind) {
      figures.client_ns.push_back(client[i]);
      figures.compute_ns.push_back(compute[i]);
    }
  }
  return figures;
}

std::string LatencyTable(const v1::ModelInfo& model, const DemoRun& run) {
  Table table({"a call", "rows", "calls", "p50", "p99", "of it computing", "tokens/s"});
  for (bool decode : {false, true}) {
    for (v1::LayerKind kind : {v1::LAYER_KIND_LOCAL_GQA, v1::LAYER_KIND_GLOBAL_MLA}) {
      const PhaseFigures figures = Collect(model, kind, decode, run);
      if (figures.client_ns.empty() || figures.rows == 0) {
        continue;
      }
      const double p50 = Quantile(figures.client_ns, 0.5);
      table.Row({std::string(decode ? "decode" : "prefill") +
                     (kind == v1::LAYER_KIND_LOCAL_GQA ? ", local layer" : ", global layer"),
                 Count(figures.rows), Count(static_cast<int64_t>(figures.client_ns.size())),
                 Duration(p50), Duration(Quantile(figures.client_ns, 0.99)),
                 Duration(Quantile(figures.compute_ns, 0.5)),
                 Count(static_cast<int64_t>(static_cast<double>(figures.rows) * 1e9 / p50))});
    }
  }
  return table.ToString();
}

double TokenNs(const DemoRun& run) {
  double total = 0;
  for (double ns : run.times.decode_ns) {
    total += ns;
  }
  return run.shape.decode_steps > 0 ? total / static_cast<double>(run.shape.decode_steps) : 0;
}

std::string CheckText(const std::optional<DemoCheck>& check) {
  if (!check.has_value()) {
    return "not checked: the weights are a file's, which this tool cannot make again";
  }
  int64_t rows = 0;
  for (const LayerCheck& layer : check->layers) {
    rows += layer.rows;
  }
  char text[160];
  std::snprintf(text, sizeof(text), "%s: %s rows, worst error %.1e of %.0e",
                check->passed() ? "right" : "WRONG", Count(rows).c_str(), check->worst(),
                check->tolerance);
  return text;
}

void PrintText(const v1::ModelInfo& model, const DemoRun& run,
               const std::optional<DemoCheck>& check) {
  const double token_ns = TokenNs(run);
  List list;
  list.Item("model",
            model.name() + " on " + model.device() + ", " + Count(run.shape.layers) + " layers");
  list.Item("session", Count(run.shape.prefill_rows) + " rows prefilled, " +
                           Count(run.shape.decode_steps) + " tokens decoded");
  list.Item("a token through all layers",
            Duration(token_ns) + ", " +
                Count(token_ns > 0 ? static_cast<int64_t>(1e9 / token_ns) : 0) + " tokens/s");
  list.Item("cache of the session", Bytes(static_cast<double>(run.session.cache_bytes())));
  list.Item("answers", CheckText(check));
  std::printf("%s\n%s", LatencyTable(model, run).c_str(), list.ToString().c_str());
}

void PrintFigures(const v1::ModelInfo& model, const DemoRun& run,
                  const std::optional<DemoCheck>& check) {
  nlohmann::ordered_json json = {{"model", model.name()},
                                 {"device", model.device()},
                                 {"prefill_rows", run.shape.prefill_rows},
                                 {"decode_steps", run.shape.decode_steps},
                                 {"token_ns", TokenNs(run)},
                                 {"cache_bytes", run.session.cache_bytes()},
                                 {"checked", check.has_value()}};
  for (bool decode : {false, true}) {
    for (v1::LayerKind kind : {v1::LAYER_KIND_LOCAL_GQA, v1::LAYER_KIND_GLOBAL_MLA}) {
      const PhaseFigures figures = Collect(model, kind, decode, run);
      if (!figures.client_ns.empty()) {
        json[decode ? "decode" : "prefill"][kind == v1::LAYER_KIND_LOCAL_GQA ? "local" : "global"] =
            {{"p50_ns", Quantile(figures.client_ns, 0.5)},
             {"p99_ns", Quantile(figures.client_ns, 0.99)},
             {"compute_p50_ns", Quantile(figures.compute_ns, 0.5)}};
      }
    }
  }
  if (check.has_value()) {
    json["passed"] = check->passed();
    json["worst_error"] = check->worst();
    json["tolerance"] = check->tolerance;
  }
  std::printf("%s\n", json.dump(2).c_str());
}

absl::Status Run(const Args& args) {
  const absl::StatusOr<std::unique_ptr<client::Client>> client = ConnectFrom(args);
  if (!client.ok()) {
    return client.status();
  }
  const absl::StatusOr<v1::ModelInfo> model = (*client)->Model();
  if (!model.ok()) {
    return model.status();
  }
  const bool progress = isatty(STDERR_FILENO) == 1;
  const absl::StatusOr<DemoRun> run = RunDemo(**client, ShapeFor(*model), progress);
  if (!run.ok()) {
    return run.status();
  }
  std::optional<DemoCheck> check;
  if (CanCheck(*model)) {
    absl::StatusOr<DemoCheck> checked = CheckDemo(*model, *run, progress);
    if (!checked.ok()) {
      return checked.status();
    }
    check = *std::move(checked);
  }
  if (args.Switch("json")) {
    PrintFigures(*model, *run, check);
  } else {
    PrintText(*model, *run, check);
  }
  return !check.has_value() || check->passed()
             ? absl::OkStatus()
             : absl::DataLossError("answers differ from the float64 reference");
}

}  // namespace

Command DemoCommand() {
  return {"demo",
          "Runs a session through every layer, times it and checks the answers.",
          "",
          "Creates a session on the running server, prefills min(1,000, max_seq_len - 100) rows "
          "through\n"
          "every layer, decodes 100 tokens, and closes it. When the weights are random:SEED, a "
          "sample of\n"
          "the answers is checked against a float64 reference computed here: exit code 1 when one "
          "is off.\n"
          "Latencies are the client's; \"of it computing\" is the server's own share.\n\n"
          "Example\n  attnctl demo --target 127.0.0.1:8470\n",
          ServerFlags(),
          0,
          Run};
}

}  // namespace attnd::attnctl
