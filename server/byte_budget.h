// The memory that requests and answers may hold at a time, whatever clients send: a request is
// charged when its size is known and before its rows are copied, until its answer has left.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace attnd::server {

class ByteBudget;

// Bytes of a budget; given back with the object. Movable; the budget outlives it.
class ByteCharge {
 public:
  ByteCharge() = default;
  ByteCharge(ByteBudget* budget, int64_t bytes) : budget_(budget), bytes_(bytes) {}
  ByteCharge(ByteCharge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  ByteCharge& operator=(ByteCharge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ByteCharge();

 private:
  ByteBudget* budget_ = nullptr;
  int64_t bytes_ = 0;
};

class ByteBudget {
 public:
  explicit ByteBudget(int64_t limit) : limit_(limit) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // QUEUE_FULL, with advice to try again, when so many more bytes exceed the limit. Where nothing
  // else is in flight any request may run.
  absl::StatusOr<ByteCharge> Charge(int64_t bytes);
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  friend class ByteCharge;

  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

}  // namespace attnd::server
