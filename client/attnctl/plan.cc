// attnctl plan: what a model costs in parameters, cache and FLOP, before a server runs it.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/attnctl/command.h"
#include "client/attnctl/plan_figures.h"
#include "client/attnctl/table.h"
#include "client/attnctl/units.h"

namespace attnd::attnctl {
namespace {

double D(int64_t n) { return static_cast<double>(n); }

std::string Header(const ModelConfig& config, const PlanFigures& plan, bool dtype_given) {
  std::string text = config.name + ": " + Count(config.n_layers) + " layers, " +
                     Count(plan.local_layers) + " local (GQA, window " +
                     Count(config.local_window) + ") and " + Count(plan.global_layers) +
                     " global (MLA)\ncontext " + Count(plan.context) + " tokens, " +
                     Count(plan.sessions) + (plan.sessions == 1 ? " session" : " sessions") + "\n";
  if (plan.dtype == DType::kInt8) {
    return text + "cache elements: int8, and a scale a row; rotary keys bf16\n";
  }
  const std::string size = std::to_string(DTypeSize(plan.dtype));
  return text + (dtype_given ? "cache elements: " + std::string(DTypeName(plan.dtype)) + ", " +
                                   size + " bytes each\n"
                             : "cache elements: " + size +
                                   " bytes each (--cache_dtype counts another type)\n");
}

// MHA against GQA against MLA, in a layer of this model's shape.
std::string CompareKinds(const PlanFigures& plan) {
  const KindFigures* kinds[] = {&plan.mha, &plan.gqa, &plan.mla};
  Table table({"one layer", "MHA", "GQA", "MLA"});
  const auto row = [&](const std::string& name, auto cell) {
    std::vector<std::string> cells = {name};
    for (const KindFigures* kind : kinds) {
      cells.push_back(cell(*kind));
    }
    table.Row(cells);
  };
  row("parameters", [](const KindFigures& kind) { return Count(kind.parameters); });
  row("cache per token, elements",
      [](const KindFigures& kind) { return Count(kind.cache_elements); });
  row("  share of MHA", [&](const KindFigures& kind) {
    return Percent(D(kind.cache_elements) / D(plan.mha.cache_elements));
  });
  row("cache per token", [](const KindFigures& kind) { return Bytes(kind.token_bytes); });
  row("cache of the whole context",
      [](const KindFigures& kind) { return Bytes(kind.layer_bytes); });
  return table.ToString();
}

std::string Share(double part, double whole) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.1f times less", whole / part);
  return text;
}

std::string Memory(const PlanFigures& plan) {
  const double sessions = D(plan.sessions);
  char fewer[64];
  std::snprintf(fewer, sizeof(fewer), "%.4g times fewer", D(plan.context) / D(plan.window_keys));
  List list;
  list.Item("parameters of attention", Count(plan.parameters));
  list.Item("keys of a local row",
            Count(plan.window_keys) + " of " + Count(plan.context) + ", " + fewer);
  list.Item("cache per token",
            Bytes(plan.token_bytes) + ", beyond the window " + Bytes(plan.late_token_bytes));
  list.Item("cache per session", Bytes(plan.session_bytes()) + " (local layers " +
                                     Bytes(plan.local_bytes) + ", global layers " +
                                     Bytes(plan.global_bytes) + ")");
  list.Item("  with MHA in every layer", Bytes(plan.mha_session_bytes) + "; attnd holds " +
                                             Share(plan.session_bytes(), plan.mha_session_bytes));
  list.Item("cache of " + Count(plan.sessions) + (plan.sessions == 1 ? " session" : " sessions"),
            Bytes(sessions * plan.session_bytes()) + " (with MHA " +
                Bytes(sessions * plan.mha_session_bytes) + ")");
  return list.ToString();
}

std::string Compute(const PlanFigures& plan) {
  Table table({"FLOP of one token", "layers", "projections", "attention", "a layer", "all"});
  const auto row = [&](const char* name, int64_t layers, double projections, double attention) {
    table.Row({name, Count(layers), Flop(projections), Flop(attention),
               Flop(projections + attention), Flop(D(layers) * (projections + attention))});
  };
  row("local", plan.local_layers, plan.local_projections, plan.local_attention);
  row("global, absorbed", plan.global_layers, plan.global_projections, plan.global_attention);
  table.Row(
      {"model", Count(plan.local_layers + plan.global_layers), "", "", "", Flop(plan.token_flop)});
  return table.ToString();
}

nlohmann::ordered_json KindJson(const KindFigures& kind) {
  return {{"parameters", kind.parameters},
          {"cache_elements_per_token", kind.cache_elements},
          {"cache_bytes_per_token", kind.token_bytes},
          {"cache_bytes_of_context", kind.layer_bytes}};
}

std::string Json(const ModelConfig& config, const PlanFigures& plan) {
  const nlohmann::ordered_json json = {
      {"model", config.name},
      {"context", plan.context},
      {"sessions", plan.sessions},
      {"cache_element_bytes", DTypeSize(plan.dtype)},
      {"local_layers", plan.local_layers},
      {"global_layers", plan.global_layers},
      {"layer",
       {{"mha", KindJson(plan.mha)}, {"gqa", KindJson(plan.gqa)}, {"mla", KindJson(plan.mla)}}},
      {"parameters", plan.parameters},
      {"window_keys", plan.window_keys},
      {"cache_bytes_per_token", plan.token_bytes},
      {"cache_bytes_per_token_beyond_window", plan.late_token_bytes},
      {"cache_bytes_per_session", plan.session_bytes()},
      {"mha_cache_bytes_per_session", plan.mha_session_bytes},
      {"cache_bytes_of_all_sessions", D(plan.sessions) * plan.session_bytes()},
      {"flop_per_token_local_layer", plan.local_projections + plan.local_attention},
      {"flop_per_token_global_layer", plan.global_projections + plan.global_attention},
      {"flop_per_token", plan.token_flop}};
  return json.dump(2) + "\n";
}

absl::Status Run(const Args& args) {
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(args.Text("model"));
  if (!config.ok()) {
    return UsageError(std::string(config.status().message()));
  }
  const int64_t context = args.Has("context") ? args.Int("context") : config->max_seq_len;
  if (context > config->max_seq_len) {
    return UsageError("--context: " + std::to_string(context) + "; " + config->name +
                      " takes at most " + std::to_string(config->max_seq_len));
  }
  DType dtype = DType::kBF16;
  if (args.Has("cache_dtype")) {
    const std::optional<DType> named = DTypeFromName(args.Text("cache_dtype"));
    if (!named.has_value()) {
      return UsageError("--cache_dtype: '" + args.Text("cache_dtype") +
                        "'; expected f32, bf16, f16 or int8");
    }
    dtype = *named;
  }
  const PlanFigures plan = ComputePlan(*config, context, args.Int("sessions"), dtype);
  const std::string text = args.Switch("json") ? Json(*config, plan)
                                               : Header(*config, plan, args.Has("cache_dtype")) +
                                                     "\n" + CompareKinds(plan) + "\n" +
                                                     Memory(plan) + "\n" + Compute(plan);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

Command PlanCommand() {
  return {
      "plan",
      "Prints what a model costs: parameters, cache, FLOP. Needs no server.",
      "",
      "MHA is the same heads without grouping or latents: what the model would cost. A session's\n"
      "cache is counted by formula: the whole context on global layers, the window on local ones;\n"
      "the server rounds up to pages of 64 tokens and keeps a little more for rewinding.\n\n"
      "Example\n  attnctl plan --model builtin:apex1-large --context 131072 --sessions 16\n",
      {{"model", Flag::Kind::kText, "builtin:apex1-small",
        "builtin:apex1-tiny|small|medium|large or a YAML file"},
       {"context", Flag::Kind::kInt, "", "tokens per session; none: the model's longest", 1},
       {"sessions", Flag::Kind::kInt, "1", "sessions held at a time", 1, 1'000'000'000},
       {"cache_dtype", Flag::Kind::kText, "", "f32, bf16, f16 or int8; none: elements of 2 bytes"},
       {"json", Flag::Kind::kSwitch, "", "print JSON, for scripts"}},
      0,
      Run};
}

}  // namespace attnd::attnctl
