// Who sees whom, as a picture: a row per query, a column per key.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/layer_plan.h"

namespace attnd {

// The picture of all `length` rows, lines ending in '\n': a title, the positions, and for every
// query a filled square under each key that it sees and a dot under each that it does not. A remark
// stands at the first row of the prefix and at the first after it. Length 1 to 1024, prefix from 0,
// window from 1; else INVALID_ARGUMENT.
absl::StatusOr<std::string> MaskPicture(LayerKind kind, int64_t length, int64_t prefix,
                                        int64_t window);

}  // namespace attnd
