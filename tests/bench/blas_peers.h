// What OpenBLAS does with the same work: sgemm for projections, and for GQA decode a product per
// KV head, a softmax, and another product.
#pragma once

#include "tests/bench/harness.h"

namespace attnd::bench {

void AddBlasPeers(const Setting& setting);

}  // namespace attnd::bench
