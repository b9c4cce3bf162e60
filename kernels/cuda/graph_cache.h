// Layers that ran before, by their operations. A decode step has the same operations as the one
// before it, at other positions.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/runtime.h"

namespace attnd::kernels::cuda {

class GraphCache {
 public:
  struct Entry {
    std::vector<Operation> operations;
    std::unique_ptr<Graph> graph;
    int64_t uses = 0;
  };

  explicit GraphCache(int64_t capacity) : capacity_(capacity) {}

  // That of these operations, made when there is none, in place of the one that was longest not
  // asked for.
  Entry& Find(const std::vector<Operation>& operations) {
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->operations == operations) {
        entries_.splice(entries_.begin(), entries_, entry);
        return entries_.front();
      }
    }
    if (static_cast<int64_t>(entries_.size()) >= capacity_) {
      entries_.pop_back();
    }
    entries_.push_front({operations, nullptr, 0});
    return entries_.front();
  }
  void Clear() { entries_.clear(); }

 private:
  const int64_t capacity_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace attnd::kernels::cuda
