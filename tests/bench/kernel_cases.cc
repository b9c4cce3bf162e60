#include "tests/bench/kernel_cases.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/convert.h"

namespace attnd::bench {

std::vector<float> Values(int64_t n, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(n));
  uint64_t state = seed * 2 + 1;
  for (float& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
  }
  return values;
}

PagedBatch::PagedBatch(kernels::Backend& backend, DType dtype, int64_t page_elements,
                       const std::vector<Span>& spans)
    : dtype_(dtype) {
  int64_t pages = 0;
  for (const Span& span : spans) {
    const int64_t end = span.history + span.rows;
    const int64_t first =
        span.window == 0 ? 0 : std::max<int64_t>(0, span.history - span.window + 1);
    const int64_t first_page = first / kernels::kPageTokens;
    const int64_t count = (end - 1) / kernels::kPageTokens - first_page + 1;
    pages_.emplace_back();
    for (int64_t i = 0; i < count; ++i) {
      pages_.back().push_back((pages + i) * page_elements * DTypeSize(dtype));
    }
    sequences_.push_back({nullptr, first_page, rows(), span.rows});
    for (int64_t row = span.history; row < end; ++row) {
      lo_.push_back(span.window == 0 ? 0 : std::max<int64_t>(0, row - span.window + 1));
      hi_.push_back(row + 1);
    }
    pages += count;
    tokens_ += end - first;
  }
  for (size_t i = 0; i < sequences_.size(); ++i) {
    sequences_[i].pages = pages_[i].data();
  }
  auto pool = backend.Allocate("pages", pages * page_elements * DTypeSize(dtype));
  Check(pool.ok(), "there is memory for the pages of a benchmark");
  pool_ = std::move(*pool);
  const std::vector<float> values = Values(page_elements, 3);
  for (int64_t page = 0; page < pages; ++page) {
    kernels::FromFloat(dtype, values.data(), page_elements,
                       pool_->data() + page * page_elements * DTypeSize(dtype));
  }
}

int64_t PagedBatch::pairs() const {
  int64_t pairs = 0;
  for (size_t row = 0; row < lo_.size(); ++row) {
    pairs += hi_[row] - lo_[row];
  }
  return pairs;
}

kernels::BatchLimits PagedBatch::limits() const {
  kernels::BatchLimits limits{rows(), static_cast<int64_t>(sequences_.size()), 0};
  for (size_t row = 0; row < lo_.size(); ++row) {
    limits.max_keys = std::max(limits.max_keys, hi_[row] - lo_[row]);
  }
  return limits;
}

kernels::AttentionBatch PagedBatch::Batch(float scale) const {
  kernels::AttentionBatch batch;
  batch.pool = pool_->data();
  batch.dtype = dtype_;
  batch.sequences = sequences_.data();
  batch.num_sequences = static_cast<int64_t>(sequences_.size());
  batch.lo = lo_.data();
  batch.hi = hi_.data();
  batch.scale = scale;
  return batch;
}

}  // namespace attnd::bench
