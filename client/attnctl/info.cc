// attnctl info: what a server serves.
#include <algorithm>
#include <cstdio>

#include "client/attnctl/command.h"
#include "client/attnctl/connect.h"
#include "client/attnctl/table.h"
#include "client/attnctl/units.h"

namespace attnd::attnctl {
namespace {

// "12: L L L L L G L L L L L G", cut after 36.
std::string Layers(const v1::ModelInfo& model) {
  std::string text = std::to_string(model.layers_size()) + ":";
  for (int i = 0; i < std::min(model.layers_size(), 36); ++i) {
    text += model.layers(i) == v1::LAYER_KIND_GLOBAL_MLA ? " G" : " L";
  }
  return text + (model.layers_size() > 36 ? " ..." : "");
}

std::string Render(const v1::ModelInfo& model) {
  std::string dtypes;
  for (int dtype : model.hidden_dtypes()) {
    dtypes += (dtypes.empty() ? "" : ", ") + std::string(WireDtypeName(v1::Dtype(dtype)));
  }
  char rope[96];
  std::snprintf(rope, sizeof(rope), "base %g, scaling %g%s", model.rope_base(),
                model.rope_scaling(), model.rope_attn_factor() ? ", scores scaled" : "");
  List list;
  list.Item("model", model.name());
  list.Item("fingerprint", model.fingerprint());
  list.Item("weights", model.weights() + ", " + WireDtypeName(model.weight_dtype()));
  list.Item("layers", Layers(model) + "  (L sliding window, G global latent)");
  list.Item("width", Count(model.d_model()));
  list.Item("heads", std::to_string(model.num_heads_q()) + " query, " +
                         std::to_string(model.num_heads_kv()) + " key/value, of " +
                         std::to_string(model.d_head()));
  list.Item("latents", std::to_string(model.d_kv_compressed()) + " key/value, " +
                           std::to_string(model.d_q_compressed()) + " query, rotary part " +
                           std::to_string(model.d_head_rope()));
  list.Item("window", Count(model.local_window()) + " tokens");
  list.Item("longest session", Count(model.max_seq_len()) + " tokens");
  list.Item("rotary embedding", rope);
  list.Item("cache", std::string(WireDtypeName(model.cache_dtype())) + ", " +
                         Bytes(static_cast<double>(model.kv_cache_capacity_bytes())) +
                         " in pages of " + std::to_string(model.page_tokens()) + " tokens");
  list.Item("cache per token", Count(model.local_bytes_per_token()) + " B a local layer, " +
                                   Count(model.global_bytes_per_token()) + " B a global layer");
  list.Item("sure rewind", Count(model.max_rewind()) + " tokens");
  list.Item("rows on the wire", dtypes);
  list.Item("largest message", Bytes(static_cast<double>(model.max_message_bytes())));
  list.Item("largest batch", Count(model.max_batch_rows()) + " rows");
  list.Item("device", model.device());
  list.Item("version", model.version());
  return list.ToString();
}

absl::Status Run(const Args& args) {
  auto connected = ConnectFrom(args);
  if (!connected.ok()) {
    return connected.status();
  }
  const absl::StatusOr<v1::ModelInfo> model = (*connected)->Model();
  if (!model.ok()) {
    return model.status();
  }
  if (args.Switch("json")) {
    PrintJson(*model);
  } else {
    std::fputs(Render(*model).c_str(), stdout);
  }
  return absl::OkStatus();
}

}  // namespace

Command InfoCommand() {
  return {"info",
          "Prints what a server serves: model, weights, cache, device.",
          "",
          "Example\n  attnctl info --target 127.0.0.1:8470\n",
          ServerFlags(),
          0,
          Run};
}

}  // namespace attnd::attnctl
