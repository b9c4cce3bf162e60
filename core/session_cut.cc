// Cuts of whole sessions.
#include "core/session_cut.h"

#include <string>
#include <utility>

#include "core/error.h"

namespace attnd {
namespace {

absl::Status OfLayer(int64_t layer, const absl::Status& status) {
  return MakeError(*ReasonOf(status),
                   "layer " + std::to_string(layer) + ": " + std::string(status.message()));
}

absl::Status CheckFork(const LayerCache& cache, const LayerRules& rules, int64_t position) {
  if (cache.length > 0 && !cache.PrefixAnswered(rules.prefix)) {
    return MakeError(Reason::kPrefixIncomplete, "the layer has " + std::to_string(cache.length) +
                                                    " of the prefix's " +
                                                    std::to_string(rules.prefix) + " rows");
  }
  if (position == 0) {
    return absl::OkStatus();
  }
  if (position > cache.length) {
    return MakeError(Reason::kPositionMismatch,
                     "position is " + std::to_string(position) + "; expected at most " +
                         std::to_string(cache.length) + ", the layer's length");
  }
  if (absl::Status status = CheckCut(cache, rules, position); !status.ok()) {
    return status;
  }
  if (position < rules.prefix) {  // the session itself could repeat the step that completed it
    return MakeError(Reason::kPrefixAnswered,
                     "position is " + std::to_string(position) + "; expected 0 or at least " +
                         std::to_string(rules.prefix) + ", the prefix_length");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RewindSession(const LayerPlan& plan, int64_t position, Session* session) {
  if (absl::Status status = session->Open(); !status.ok()) {
    return status;
  }
  std::vector<std::pair<int64_t, LayerCache>> cuts;
  for (int64_t layer = 0; layer < plan.num_layers(); ++layer) {
    LayerCache cache = session->Cache(layer);
    if (cache.length <= position) {
      continue;
    }
    const LayerRules rules = session->Rules(layer);
    if (absl::Status status = CheckCut(cache, rules, position); !status.ok()) {
      return OfLayer(layer, status);
    }
    Cut(&cache, rules, position);
    cuts.emplace_back(layer, std::move(cache));
  }
  return session->Commit(std::move(cuts));
}

absl::StatusOr<std::vector<LayerCache>> ForkCaches(const LayerPlan& plan, int64_t position,
                                                   const Session& session) {
  if (absl::Status status = session.Open(); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::vector<LayerCache>> caches = session.Caches();
  if (!caches.ok()) {
    return caches;
  }
  for (int64_t layer = 0; layer < plan.num_layers(); ++layer) {
    LayerCache& cache = (*caches)[static_cast<size_t>(layer)];
    const LayerRules rules = session.Rules(layer);
    if (absl::Status status = CheckFork(cache, rules, position); !status.ok()) {
      return OfLayer(layer, status);
    }
    cache.shadow.reset();  // the session's own: a cut would reach it
    if (position > 0 && position < cache.length) {
      Cut(&cache, rules, position);
    }
  }
  return caches;
}

}  // namespace attnd
