// The demo's hidden states: deterministic, about standard normal, the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

namespace attnd::attnctl {

// Rows [begin, begin + rows) of the layer's stream, [rows, width].
std::vector<float> DemoRows(int64_t layer, int64_t begin, int64_t rows, int64_t width);

}  // namespace attnd::attnctl
