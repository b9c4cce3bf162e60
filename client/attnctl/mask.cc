// attnctl mask: who sees whom, as a picture.
#include <cstdio>

#include "client/attnctl/command.h"
#include "core/layer_plan.h"
#include "core/mask_picture.h"
#include "core/model_config.h"

namespace attnd::attnctl {
namespace {

absl::Status Run(const Args& args) {
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(args.Text("model"));
  if (!config.ok()) {
    return config.status();
  }
  const LayerPlan plan = MakeLayerPlan(*config);
  const int64_t layer = args.Int("layer");
  if (layer >= plan.num_layers()) {
    return UsageError("--layer: " + std::to_string(layer) + "; " + config->name +
                      " has layers 0 to " + std::to_string(plan.num_layers() - 1));
  }
  const LayerKind kind = plan.layers[static_cast<size_t>(layer)];
  const int64_t window = args.Has("window") ? args.Int("window") : config->local_window;
  const absl::StatusOr<std::string> picture =
      MaskPicture(kind, args.Int("len"), args.Int("prefix"), window);
  if (!picture.ok()) {
    return picture.status();
  }
  std::fputs(picture->c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

Command MaskCommand() {
  return {"mask",
          "Draws which keys each query sees in a layer. Needs no server.",
          "",
          "A row is a query, a column a key. Rows below --prefix see the whole prefix and nothing\n"
          "else; later rows see what came before, on a local layer the last --window keys of it.\n"
          "The model's plan says whether --layer is local or global.\n\n"
          "Example\n  attnctl mask --prefix 4 --window 4 --len 10 --layer 0\n"
          "  attnctl mask --prefix 4 --window 4 --len 10 --layer 5\n",
          {{"prefix", Flag::Kind::kInt, "0", "length of the bidirectional prefix", 0},
           {"window", Flag::Kind::kInt, "", "keys that a local row sees; none: the model's", 1},
           {"len", Flag::Kind::kInt, "10", "rows to draw", 1, 1024},
           {"layer", Flag::Kind::kInt, "0", "layer of the model, from 0", 0},
           {"model", Flag::Kind::kText, "builtin:apex1-small",
            "builtin:apex1-tiny|small|medium|large or a YAML file"}},
          0,
          Run};
}

}  // namespace attnd::attnctl
