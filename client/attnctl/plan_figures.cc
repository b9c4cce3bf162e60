// What a model costs, by formula.
#include "client/attnctl/plan_figures.h"

#include <algorithm>

#include "core/planner.h"

namespace attnd::attnctl {
namespace {

double D(int64_t n) { return static_cast<double>(n); }

KindFigures Kind(int64_t parameters, int64_t elements, int64_t token_bytes,
                 const PlanFigures& plan) {
  return {parameters, elements, D(token_bytes), D(token_bytes) * D(plan.context)};
}

void AddFlop(const ModelConfig& config, PlanFigures* plan) {
  plan->local_projections = 2 * D(plan->gqa.parameters);
  plan->global_projections = 2 * D(plan->mla.parameters);
  const double local = LocalDecodeFlop(config, plan->context);
  const double global = GlobalDecodeFlop(config, plan->context);
  plan->local_attention = local - plan->local_projections;
  plan->global_attention = global - plan->global_projections;
  plan->token_flop = D(plan->local_layers) * local + D(plan->global_layers) * global;
}

}  // namespace

PlanFigures ComputePlan(const ModelConfig& config, int64_t context, int64_t sessions, DType dtype) {
  const LayerPlan layers = MakeLayerPlan(config);
  PlanFigures plan;
  plan.context = context;
  plan.sessions = sessions;
  plan.dtype = dtype;
  plan.local_layers = layers.CountOf(LayerKind::kLocal);
  plan.global_layers = layers.CountOf(LayerKind::kGlobal);
  plan.mha =
      Kind(MhaParameters(config), MhaCacheElements(config), MhaTokenBytes(config, dtype), plan);
  plan.gqa =
      Kind(GqaParameters(config), GqaCacheElements(config), GqaTokenBytes(config, dtype), plan);
  plan.mla =
      Kind(MlaParameters(config), MlaCacheElements(config), MlaTokenBytes(config, dtype), plan);
  plan.parameters =
      plan.local_layers * plan.gqa.parameters + plan.global_layers * plan.mla.parameters;
  plan.window_keys = std::min(context, config.local_window);
  plan.late_token_bytes = D(plan.global_layers) * plan.mla.token_bytes;
  plan.token_bytes = D(plan.local_layers) * plan.gqa.token_bytes + plan.late_token_bytes;
  plan.local_bytes = D(plan.local_layers) * plan.gqa.token_bytes * D(plan.window_keys);
  plan.global_bytes = D(plan.global_layers) * plan.mla.layer_bytes;
  plan.mha_session_bytes = D(layers.num_layers()) * plan.mha.layer_bytes;
  AddFlop(config, &plan);
  return plan;
}

}  // namespace attnd::attnctl
