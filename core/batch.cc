#include "core/batch.h"

#include <algorithm>

namespace attnd {

std::vector<size_t> FormBatch(const std::vector<ReadyItem>& ready, int64_t max_rows) {
  if (ready.size() <= 1) {
    return std::vector<size_t>(ready.size(), 0);  // a step that finds the engine idle
  }
  const auto before = [&](size_t a, size_t b) {
    return ready[a].turn != ready[b].turn ? ready[a].turn < ready[b].turn
                                          : ready[a].order < ready[b].order;
  };
  size_t first = 0;
  for (size_t i = 1; i < ready.size(); ++i) {
    first = before(i, first) ? i : first;
  }
  std::vector<size_t> candidates;
  for (size_t i = 0; i < ready.size(); ++i) {
    if (ready[i].layer == ready[first].layer) {
      candidates.push_back(i);
    }
  }
  std::sort(candidates.begin(), candidates.end(), before);
  std::vector<size_t> batch;
  int64_t rows = 0;
  for (size_t i : candidates) {
    if (batch.empty() || rows + ready[i].rows <= max_rows) {
      batch.push_back(i);
      rows += ready[i].rows;
    }
  }
  return batch;
}

}  // namespace attnd
