// Ways of cutting the rows of a sequence into Prefill and Decode calls; every way must give the
// same answers.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace attnd {

struct Call {
  bool decode = false;
  int64_t position = 0;
  int64_t rows = 0;
};

struct Split {
  std::string name;
  std::vector<Call> calls;
};

// At least four: whole, one row at a time, around the window's size, and at random (two draws).
inline std::vector<Split> MakeSplits(int64_t len, int64_t prefix, int64_t window,
                                     std::mt19937* random) {
  const auto draw = [&](int64_t n) { return static_cast<int64_t>((*random)() % n) + 1; };
  const auto by = [&](const std::string& name, auto&& rows_of, bool decode) {
    Split split{name, {}};
    for (int64_t at = 0; at < len;) {
      const int64_t rows = std::min<int64_t>(rows_of(), len - at);
      // A Decode starts at the prefix's end at the earliest.
      split.calls.push_back({decode && at >= prefix && rows <= 8, at, rows});
      at += rows;
    }
    return split;
  };
  std::vector<Split> splits;
  splits.push_back(by(
      "whole", [&] { return len; }, false));
  splits.push_back(by(
      "row by row", [] { return 1; }, true));
  int64_t turn = 0;
  splits.push_back(by(
      "around the window", [&] { return std::max<int64_t>(1, window - 1 + turn++ % 3); }, false));
  for (int64_t most : {int64_t{12}, std::max<int64_t>(12, len / 2)}) {
    splits.push_back(by(
        "random up to " + std::to_string(most), [&] { return draw(most); }, true));
  }
  return splits;
}

}  // namespace attnd
