#include "kernels/cuda/split_classes.h"

#include <algorithm>

namespace attnd::kernels::cuda {
namespace {

// Lengths up to which keys are cut into splits of 512 and 1024.
constexpr int64_t kShort = 4096;
constexpr int64_t kLong = 65536;
// Tiles from which none are cut: a card has 108 to 160 multiprocessors.
constexpr int64_t kManyTiles = 64;

enum Class { kDecodeShort, kDecodeLong, kDecodeLonger, kFew, kFewLong, kMany };

// So that `keys` are at most `splits` of them, whole pages.
int32_t SplitFor(int64_t keys, int64_t splits) {
  return static_cast<int32_t>((keys / splits / 64 + 1) * 64);
}

}  // namespace

SplitPlan::SplitPlan(bool deterministic, int64_t max_keys) : deterministic_(deterministic) {
  const int64_t most = std::max(max_keys, kLong);
  // A first split may be cut short by a window's begin: one more.
  classes_[kDecodeShort] = {true, 512, kShort / 512 + 1};
  classes_[kDecodeLong] = {true, 1024, kLong / 1024 + 1};
  classes_[kDecodeLonger] = {true, SplitFor(most, 64), 65};
  classes_[kFew] = {false, 2048, kLong / 2048 + 1};
  classes_[kFewLong] = {false, SplitFor(most, 32), 33};
  classes_[kMany] = {false, kOneSplit, 1};
  for (SplitClass& c : classes_) {
    c.max_splits = std::min(c.max_splits, max_keys / c.split_keys + 2);
  }
  classes_[kMany].max_splits = 1;
  if (!deterministic) {
    classes_[kDecodeShort] = {true, 0, 1};
    classes_[kFew] = {false, 0, 1};
  }
}

int64_t SplitPlan::MostWork(int64_t decode_tiles, int64_t tiles) const {
  int64_t most = 1;
  for (const SplitClass& c : classes_) {
    const int64_t cut = c.decode ? decode_tiles : std::min(tiles, kManyTiles - 1);
    most = std::max(most, c.max_splits > 1 ? cut * c.max_splits : 0);
  }
  return most;
}

int SplitPlan::ClassOf(bool decode, int64_t tiles, int64_t keys) const {
  if (!deterministic_) {
    return decode ? kDecodeShort : kFew;
  }
  if (decode) {
    return keys <= kShort ? kDecodeShort : keys <= kLong ? kDecodeLong : kDecodeLonger;
  }
  return tiles >= kManyTiles ? kMany : keys <= kLong ? kFew : kFewLong;
}

}  // namespace attnd::kernels::cuda
