#include "tests/support/reference_answers.h"

#include <utility>

#include "core/rope.h"
#include "kernels/check.h"
#include "kernels/convert.h"
#include "kernels/reference/layers.h"

namespace attnd {
namespace {

// In the order of LayerTensors().
std::vector<kernels::ReferenceMatrix> Matrices(const LayerPlan& plan, WeightSource* weights,
                                               int64_t layer) {
  std::vector<kernels::ReferenceMatrix> matrices;
  for (const TensorSpec& spec : LayerTensors(plan, layer)) {
    const absl::StatusOr<TensorView> view = weights->Tensor(spec);
    Check(view.ok(), "a test's weights have every tensor");
    std::vector<float> values(static_cast<size_t>(spec.out * spec.in));
    kernels::ToFloat(view->dtype, view->data, spec.out * spec.in, values.data());
    matrices.emplace_back(values.begin(), values.end());
  }
  return matrices;
}

}  // namespace

std::vector<float> ReferenceAnswers(const LayerPlan& plan, WeightSource* weights, int64_t layer,
                                    const std::vector<float>& x, int64_t prefix) {
  const std::vector<double> wide(x.begin(), x.end());
  const int64_t rows = static_cast<int64_t>(x.size()) / plan.d_model;
  const std::vector<int64_t> all = kernels::AllRows(rows);
  std::vector<kernels::ReferenceMatrix> w = Matrices(plan, weights, layer);
  std::vector<double> answers;
  if (plan.layers[static_cast<size_t>(layer)] == LayerKind::kLocal) {
    Check(w.size() == 4, "a local layer has four tensors");
    const kernels::ReferenceLocalLayer reference{
        plan.d_model,
        plan.local.shape,
        plan.local.window,
        plan.local.scale,
        RopeFrequencies(plan.local.rope),
        std::move(w[0]),
        std::move(w[1]),
        std::move(w[2]),
        std::move(w[3]),
    };
    answers = kernels::ReferenceForward(reference, wide, rows, prefix, all);
  } else {
    Check(w.size() == 8, "a global layer has eight tensors");
    const kernels::ReferenceGlobalLayer reference{
        plan.d_model,
        plan.global.d_query_latent,
        plan.global.shape,
        plan.global.scale,
        RopeFrequencies(plan.global.rope),
        std::move(w[0]),
        std::move(w[1]),
        std::move(w[2]),
        std::move(w[3]),
        std::move(w[4]),
        std::move(w[6]),  // W_KR
        std::move(w[5]),  // W_QR
        std::move(w[7]),
    };
    answers = kernels::ReferenceForward(reference, wide, rows, prefix, all);
  }
  return {answers.begin(), answers.end()};
}

}  // namespace attnd
