#include "tests/bench/kernel_cases.h"

#include <algorithm>

#include "kernels/cache_layout.h"
#include "kernels/check.h"

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

std::vector<uint8_t> FilledPage(const kernels::LocalShape& shape, DType dtype) {
  std::vector<uint8_t> page(static_cast<size_t>(kernels::PageBytes(shape, dtype)));
  const std::vector<float> values = Values(kernels::kPageTokens * shape.row_elements(), 3);
  const float* row = values.data();
  for (int64_t head = 0; head < shape.heads_kv; ++head) {
    for (int64_t slot = 0; slot < kernels::kPageTokens; ++slot, row += 2 * shape.d_head) {
      StoreRow(KeyRows(shape, dtype, head), slot, row, shape.d_head, page.data());
      StoreRow(ValueRows(shape, dtype, head), slot, row + shape.d_head, shape.d_head, page.data());
    }
  }
  return page;
}

std::vector<uint8_t> FilledPage(const kernels::GlobalShape& shape, DType dtype) {
  std::vector<uint8_t> page(static_cast<size_t>(kernels::PageBytes(shape, dtype)));
  const std::vector<float> values = Values(kernels::kPageTokens * shape.row_elements(), 3);
  const float* row = values.data();
  for (int64_t slot = 0; slot < kernels::kPageTokens; ++slot, row += shape.row_elements()) {
    StoreRow(LatentRows(shape, dtype), slot, row, shape.d_latent, page.data());
    StoreRow(RopeRows(shape, dtype), slot, row + shape.d_latent, shape.heads_kv * shape.d_rope,
             page.data());
  }
  return page;
}

PagedBatch::PagedBatch(kernels::Backend& backend, DType dtype, const std::vector<uint8_t>& page,
                       const std::vector<Span>& spans)
    : dtype_(dtype) {
  const auto page_bytes = static_cast<int64_t>(page.size());
  int64_t pages = 0;
  for (const Span& span : spans) {
    const int64_t end = span.history + span.rows;
    const int64_t first =
        span.window == 0 ? 0 : std::max<int64_t>(0, span.history - span.window + 1);
    const int64_t first_page = first / kernels::kPageTokens;
    const int64_t count = (end - 1) / kernels::kPageTokens - first_page + 1;
    pages_.emplace_back();
    for (int64_t i = 0; i < count; ++i) {
      pages_.back().push_back((pages + i) * page_bytes);
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
  auto pool = backend.Allocate("pages", pages * page_bytes);
  Check(pool.ok(), "there is memory for the pages of a benchmark");
  pool_ = std::move(*pool);
  for (int64_t i = 0; i < pages; ++i) {
    backend.Upload(pool_->data() + i * page_bytes, page.data(), page_bytes);
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
