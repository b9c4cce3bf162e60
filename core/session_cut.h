// Cuts of whole sessions: all layers, or none.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/layer_plan.h"
#include "core/session.h"

namespace attnd {

// Cuts every layer that is longer than `position` to it. REWIND_TOO_FAR or PREFIX_ANSWERED name
// the layer that refuses; SESSION_MOVING; the session's end.
absl::Status RewindSession(const LayerPlan& plan, int64_t position, Session* session);

// The caches of a fork that holds [0, position) of every layer, or of position 0 each layer as it
// is; pages are shared with the session's own. Besides the errors of a cut: POSITION_MISMATCH for
// a layer that is shorter, PREFIX_INCOMPLETE while a layer's prefix is not answered.
absl::StatusOr<std::vector<LayerCache>> ForkCaches(const LayerPlan& plan, int64_t position,
                                                   const Session& session);

}  // namespace attnd
