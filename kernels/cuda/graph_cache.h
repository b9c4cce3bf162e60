// Layers that ran before, by their operations. A decode step has the same operations as the one
// before it, at other positions.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <unordered_map>
#include <variant>
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
    const size_t key = KeyOf(operations);
    const auto [begin, end] = index_.equal_range(key);
    for (auto found = begin; found != end; ++found) {
      const auto entry = found->second;
      if (entry->operations == operations) {
        entries_.splice(entries_.begin(), entries_, entry);
        return entries_.front();
      }
    }
    if (static_cast<int64_t>(entries_.size()) >= capacity_) {
      DropLast();
    }
    entries_.push_front({operations, nullptr, 0});
    index_.emplace(key, entries_.begin());
    return entries_.front();
  }
  void Clear() {
    index_.clear();
    entries_.clear();
  }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }

 private:
  using Entries = std::list<Entry>;

  // A layer's first product tells it from all others: few entries share a key. The layers of a
  // model take turns, so the one that is asked for is the one used longest ago: a search in order
  // of use would compare with all of them.
  static size_t KeyOf(const std::vector<Operation>& operations) {
    const auto* first = operations.empty() ? nullptr : std::get_if<ProjectParams>(&operations[0]);
    return first == nullptr
               ? operations.size()
               : std::hash<const void*>()(first->weight) * 31 + static_cast<size_t>(first->rows);
  }

  void DropLast() {
    const auto last = std::prev(entries_.end());
    const auto [begin, end] = index_.equal_range(KeyOf(last->operations));
    for (auto found = begin; found != end; ++found) {
      if (found->second == last) {
        index_.erase(found);
        break;
      }
    }
    entries_.pop_back();
  }

  const int64_t capacity_;
  Entries entries_;  // the last used first
  std::unordered_multimap<size_t, Entries::iterator> index_;
};

}  // namespace attnd::kernels::cuda
