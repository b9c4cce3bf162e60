// Between a session's state and the header of its export.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnd/v1/attnd.pb.h"
#include "core/snapshot_state.h"

namespace attnd::server {

inline constexpr uint32_t kSessionFormat = 1;

v1::SessionHeader WriteHeader(const v1::ModelInfo& model, const SnapshotState& state,
                              int64_t data_bytes);

// Without a tenant. FORMAT_MISMATCH (version, cache dtype, page size, arrays of another length than
// the model has layers), MODEL_MISMATCH, BAD_ARGUMENT (idle_ttl).
absl::StatusOr<SnapshotState> ReadHeader(const v1::ModelInfo& model,
                                         const v1::SessionHeader& header);

}  // namespace attnd::server
