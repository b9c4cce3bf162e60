// Where weights come from, and the identity of a model.
#include "core/weights.h"

#include "absl/strings/str_format.h"
#include "core/digest.h"
#include "core/random_weights.h"
#include "core/weight_files.h"

namespace attnd {
namespace {

// Every number of the plan that a row's value or place in the cache depends on.
std::string CanonicalText(const LayerPlan& plan) {
  const kernels::LocalShape& l = plan.local.shape;
  const kernels::GlobalShape& g = plan.global.shape;
  std::string text = absl::StrFormat("attnd model 1\nd_model %d max_seq_len %d\nlayers ",
                                     plan.d_model, plan.max_seq_len);
  for (const LayerKind kind : plan.layers) {
    text += kind == LayerKind::kLocal ? 'L' : 'G';
  }
  const auto rope = [](const RopeSpec& spec) {
    return absl::StrFormat("rope %d %.17g %.17g", spec.width, spec.base, spec.scaling);
  };
  text += absl::StrFormat("\nlocal %d %d %d window %d scale %.17g %s\n", l.heads_q, l.heads_kv,
                          l.d_head, plan.local.window, plan.local.scale, rope(plan.local.rope));
  text += absl::StrFormat("global %d %d %d %d %d query %d scale %.17g %s\n", g.heads_q, g.heads_kv,
                          g.d_head, g.d_rope, g.d_latent, plan.global.d_query_latent,
                          plan.global.scale, rope(plan.global.rope));
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeights(const std::string& source,
                                                          const LayerPlan& plan) {
  if (source.rfind("random:", 0) == 0) {
    return OpenRandomWeights(source);
  }
  return OpenWeightFiles(source, plan);
}

absl::StatusOr<std::string> Fingerprint(const LayerPlan& plan, WeightSource& weights) {
  Digest digest;
  digest.Add(CanonicalText(plan));
  if (weights.generated()) {
    digest.Add(weights.description());  // the text decides every bit, and takes no time to hash
    return "xxh3:" + digest.Hex();
  }
  for (int64_t layer = 0; layer < plan.num_layers(); ++layer) {
    for (const TensorSpec& spec : LayerTensors(plan, layer)) {
      const absl::StatusOr<TensorView> tensor = weights.Tensor(spec);
      if (!tensor.ok()) {
        return tensor.status();
      }
      digest.Add(spec.name + " " + DTypeName(tensor->dtype) + "\n");
      digest.Add({static_cast<const char*>(tensor->data),
                  static_cast<size_t>(tensor->out * tensor->in) *
                      static_cast<size_t>(DTypeSize(tensor->dtype))});
    }
  }
  return "xxh3:" + digest.Hex();
}

}  // namespace attnd
