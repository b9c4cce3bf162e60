// Who sees whom (spec.md): the rule, once. For every row the visible keys are one interval.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/layer_plan.h"

namespace attnd {

struct Interval {
  int64_t lo = 0;  // first visible key
  int64_t hi = 0;  // one past the last

  bool operator==(const Interval&) const = default;
};

// Keys that row `row` sees in a session with a bidirectional prefix of `prefix` rows; `window`
// counts the row itself and is ignored on global layers.
constexpr Interval Visible(LayerKind kind, int64_t row, int64_t prefix, int64_t window) {
  if (row < prefix) {
    return {0, prefix};
  }
  const int64_t lo = kind == LayerKind::kGlobal ? 0 : std::max<int64_t>(0, row - window + 1);
  return {lo, row + 1};
}

}  // namespace attnd
