// Values as caches and tensor cores hold them, and attention in float64 over a ragged batch.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/dtype.h"
#include "tests/gpu/batch.h"

namespace attnd::gpu {

// Rows of `width` values after a way through `dtype`; e4m3 with a scale for each row.
std::vector<float> Stored(DType dtype, const std::vector<float>& values, int64_t width);

// Keys and values of one KV head of a sequence, by token from RaggedBatch::first_token().
struct HeadValues {
  std::vector<double> key;    // [tokens][key_width]
  std::vector<double> value;  // [tokens][value_width]
};

struct WantedShape {
  int64_t heads_kv = 0, group = 0;
  int64_t content_width = 0, rope_width = 0, value_width = 0;
  double scale = 0;
};

// [rows][heads_kv * group][value_width]; queries [rows][heads_kv * group][width of the part].
std::vector<double> Wanted(
    const RaggedBatch& batch, const WantedShape& shape, const std::vector<float>& query,
    const std::vector<float>& rope_query,
    const std::function<HeadValues(int64_t sequence, int64_t head)>& head_of);

// Sequences that reach what kernels get wrong: lengths around pages and splits, windows that begin
// within a page, a bidirectional prefix, rows and sequences that see nothing. Histories up to
// `keys`, up to `rows` rows in a sequence, about `count` sequences.
std::vector<Intervals> RaggedSequences(Random& random, int64_t count, int64_t rows, int64_t keys);

// The rows of `run(s)` for each sequence s alone, in the order of the batch.
std::vector<float> EachAlone(const RaggedBatch& batch,
                             const std::function<std::vector<float>(int64_t only)>& run);

}  // namespace attnd::gpu
