// The memory that requests and answers may hold.
#include "server/byte_budget.h"

#include "absl/strings/str_cat.h"
#include "core/error.h"

namespace attnd::server {
namespace {

constexpr int64_t kRetryMs = 50;

}  // namespace

ByteCharge::~ByteCharge() {
  if (budget_ != nullptr) {
    budget_->used_.fetch_sub(bytes_, std::memory_order_relaxed);
  }
}

absl::StatusOr<ByteCharge> ByteBudget::Charge(int64_t bytes) {
  int64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (used > 0 && bytes > limit_ - used) {
      return MakeRetryableError(
          Reason::kQueueFull,
          absl::StrCat("the request and its answer take ", bytes, " bytes; ", used, " of ", limit_,
                       " are in flight (--max_inflight_bytes)"),
          kRetryMs);
    }
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return ByteCharge(this, bytes);
}

}  // namespace attnd::server
