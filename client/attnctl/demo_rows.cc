// The rows that the demo and the bench send.
#include "client/attnctl/demo_rows.h"

#include <cmath>

#include "client/attnctl/mix.h"

namespace attnd::attnctl {
namespace {

// The sum of four uniform 16-bit numbers, centred and scaled to variance 1.
float Normalish(uint64_t bits) {
  int64_t sum = 0;
  for (int shift = 0; shift < 64; shift += 16) {
    sum += static_cast<int64_t>((bits >> shift) & 0xffff);
  }
  return static_cast<float>((static_cast<double>(sum) / 65535.0 - 2.0) * std::sqrt(3.0));
}

}  // namespace

std::vector<float> DemoRows(int64_t layer, int64_t begin, int64_t rows, int64_t width) {
  const uint64_t stream = Mix(static_cast<uint64_t>(layer) + 1);
  std::vector<float> values(static_cast<size_t>(rows * width));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = Normalish(Mix(stream ^ (static_cast<uint64_t>(begin * width) + i)));
  }
  return values;
}

}  // namespace attnd::attnctl
