// What every form of attention does with a tile: rows in, ranges of keys, rows out.
#include <algorithm>

#include "kernels/cpu/attention_scratch.h"

namespace attnd::kernels {
namespace {

// Panels [16 rows][width] -> [width][16], scaled.
void PackQuery(const float* row, int64_t width, float scale, float* panel_lane) {
  for (int64_t k = 0; k < width; ++k) {
    panel_lane[k * kPanel] = row[k] * scale;
  }
}

}  // namespace

AttentionForm FormOf(const LocalAttentionParams& params) {
  const LocalShape& shape = params.shape;
  return {shape.heads_q, shape.heads_kv, shape.d_head, 0,
          shape.d_head,  params.query,   nullptr,      params.output};
}

AttentionForm FormOf(const LatentAttentionParams& params) {
  const GlobalShape& shape = params.shape;
  return {shape.heads_q,  shape.heads_kv, shape.d_latent,    shape.d_rope,
          shape.d_latent, params.query,   params.rope_query, params.output};
}

AttentionForm FormOf(const ExpandedAttentionParams& params) {
  const GlobalShape& shape = params.shape;
  return {shape.heads_q, shape.heads_kv, shape.d_head,      shape.d_rope,
          shape.d_head,  params.query,   params.rope_query, params.output};
}

KeySource KeysOf(const LocalShape& shape, const AttentionBatch& batch, int64_t sequence,
                 int64_t kv_head) {
  KeySource keys;
  keys.pool = batch.pool;
  keys.pages = batch.sequences[sequence].pages;
  keys.first_page = batch.sequences[sequence].first_page;
  keys.dtype = batch.dtype;
  keys.key_width = shape.d_head;
  keys.value_width = shape.d_head;
  keys.key_offset = kv_head * kPageTokens * shape.d_head;
  keys.value_offset = (shape.heads_kv + kv_head) * kPageTokens * shape.d_head;
  keys.stride = shape.d_head;
  return keys;
}

KeySource KeysOf(const GlobalShape& shape, const AttentionBatch& batch, int64_t sequence,
                 int64_t kv_head) {
  KeySource keys;
  keys.pool = batch.pool;
  keys.pages = batch.sequences[sequence].pages;
  keys.first_page = batch.sequences[sequence].first_page;
  keys.dtype = batch.dtype;
  keys.key_width = shape.d_latent;
  keys.rope_width = shape.d_rope;
  keys.value_width = shape.d_latent;
  keys.rope_offset = shape.d_latent + kv_head * shape.d_rope;
  keys.stride = shape.row_elements();
  keys.value_is_key = true;
  return keys;
}

void LoadTile(const AttentionForm& form, const AttentionBatch& batch, const AttentionTile& tile,
              WorkerScratch* scratch) {
  const int64_t depth = form.key_width + form.rope_width;
  const int64_t padded = RoundUp(tile.rows, kPanel);
  for (int64_t p = 0; p < padded; ++p) {
    // A lane without a row repeats the last row's interval: it adds no masking.
    const int64_t packed = tile.packed_begin + std::min(p, tile.rows - 1);
    const int64_t row = tile.row_begin + packed / form.group();
    scratch->lo[p] = batch.lo[row];
    scratch->hi[p] = batch.hi[row];
    float* lane = scratch->attend.query + (p / kPanel) * depth * kPanel + p % kPanel;
    if (p >= tile.rows) {
      for (int64_t k = 0; k < depth; ++k) {
        lane[k * kPanel] = 0;
      }
      continue;
    }
    PackQuery(PackedRow(form.query, form, tile, p, form.key_width), form.key_width, batch.scale,
              lane);
    if (form.rope_width > 0) {
      PackQuery(PackedRow(form.rope_query, form, tile, p, form.rope_width), form.rope_width,
                batch.scale, lane + form.key_width * kPanel);
    }
  }
}

void StoreTile(const AttentionForm& form, const AttentionTile& tile, const SoftmaxState& state) {
  const int64_t width = RoundUp(form.value_width, kPanel);
  for (int64_t p = 0; p < tile.rows; ++p) {
    float* output = PackedRow(form.output, form, tile, p, form.value_width);
    const float sum = state.sum[p];
    if (sum == 0) {
      std::fill_n(output, form.value_width, 0.0f);
      continue;
    }
    const float* values = state.values + p * width;
    for (int64_t n = 0; n < form.value_width; ++n) {
      output[n] = values[n] / sum;
    }
  }
}

void AttendRanges(const KernelTable& table, const KeySource& keys, const AttentionTile& tile,
                  WorkerScratch* scratch, int64_t begin, int64_t end, bool fresh,
                  const SoftmaxState& total) {
  AttendRange range;
  range.keys = keys;
  range.rows = tile.rows;
  range.lo = scratch->lo;
  range.hi = scratch->hi;
  range.scratch = scratch->attend;
  while (begin < end) {
    range.key_begin = begin;
    range.key_end = std::min((begin / kRangeKeys + 1) * kRangeKeys, end);
    // Merging into nothing would not change a bit: the first range goes straight there.
    range.state = fresh ? total : scratch->part;
    table.attend(range);
    if (!fresh) {
      table.merge(total, scratch->part, tile.rows, RoundUp(keys.value_width, kPanel));
    }
    fresh = false;
    begin = range.key_end;
  }
}

}  // namespace attnd::kernels
