// Which of the waiting steps run next: a pure function of the queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attnd {

// One session's part of a step whose turn within its session has come.
struct ReadyItem {
  int64_t layer = 0;   // kAllLayers: an operation, which runs alone
  uint64_t turn = 0;   // fair order over connections: lower goes first
  uint64_t order = 0;  // of acceptance, breaks ties
  int64_t rows = 0;    // of its next chunk
};
inline constexpr int64_t kAllLayers = -1;

// Indices into `ready`, in their order: the layer of the first item, and of that layer what fits
// into max_rows. The first item is taken whatever its size, so that nothing waits for ever; an
// item that does not fit is passed over, and smaller ones behind it are taken.
std::vector<size_t> FormBatch(const std::vector<ReadyItem>& ready, int64_t max_rows);

}  // namespace attnd
