// Attention batches of stated shapes over a filled pool of pages, for timing kernels alone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace attnd::bench {

// Rows [history, history + rows) of a session; `window` keys each, itself included (0: all).
struct Span {
  int64_t history = 0;
  int64_t rows = 1;
  int64_t window = 0;
};

// Deterministic values in [-1, 1).
std::vector<float> Values(int64_t n, uint64_t seed);

// A page of rows.
std::vector<uint8_t> FilledPage(const kernels::LocalShape& shape, DType dtype);
std::vector<uint8_t> FilledPage(const kernels::GlobalShape& shape, DType dtype);

// Page tables, intervals and a pool of copies of a page for a batch, on a backend.
class PagedBatch {
 public:
  PagedBatch(kernels::Backend& backend, DType dtype, const std::vector<uint8_t>& page,
             const std::vector<Span>& spans);

  int64_t rows() const { return static_cast<int64_t>(lo_.size()); }
  // Query-key pairs that are visible, of all rows.
  int64_t pairs() const;
  // Tokens that some row of its sequence sees: what must be read at least once.
  int64_t tokens() const { return tokens_; }
  kernels::BatchLimits limits() const;
  kernels::AttentionBatch Batch(float scale) const;

 private:
  DType dtype_;
  std::unique_ptr<kernels::DeviceMemory> pool_;
  std::vector<std::vector<int64_t>> pages_;
  std::vector<kernels::AttentionSequence> sequences_;
  std::vector<int64_t> lo_, hi_;
  int64_t tokens_ = 0;
};

}  // namespace attnd::bench
