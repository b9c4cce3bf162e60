// What every form of attention does with a tile: rows in, ranges of keys, rows out.
#include <algorithm>

#include "kernels/cpu/attention_scratch.h"

namespace attnd::kernels {
namespace {

// Of a global layer in any form; keys and values are of `width`.
template <typename Params>
AttentionForm GlobalForm(const Params& params, int64_t width) {
  AttentionForm form;
  form.heads_q = params.shape.heads_q;
  form.heads_kv = params.shape.heads_kv;
  form.key_width = width;
  form.value_width = width;
  form.rope_width = params.shape.d_rope;
  form.rope_group = form.group();
  form.query = params.query;
  form.rope_query = params.rope_query;
  form.output = params.output;
  return form;
}

}  // namespace

AttentionForm FormOf(const LocalAttentionParams& params) {
  AttentionForm form;
  form.heads_q = params.shape.heads_q;
  form.heads_kv = params.shape.heads_kv;
  form.key_width = params.shape.d_head;
  form.value_width = params.shape.d_head;
  form.query = params.query;
  form.output = params.output;
  return form;
}

AttentionForm FormOf(const LatentAttentionParams& params) {
  AttentionForm form = GlobalForm(params, params.shape.d_latent);
  // All query heads meet the same latents. Where a panel is of one KV head they are packed
  // together, as if there were one: latents are then widened once for 64 rows.
  if (params.shape.group() % kPanel == 0) {
    form.heads_kv = 1;
  }
  return form;
}

AttentionForm FormOf(const ExpandedAttentionParams& params) {
  return GlobalForm(params, params.shape.d_head);
}

// A query is packed as its two parts one after the other, just as a shadow's key lies.
AttentionForm FormOf(const ShadowAttentionParams& params) {
  return GlobalForm(params, params.shape.d_head);
}

KeySource KeysOf(const LocalShape& shape, const AttentionBatch& batch, int64_t sequence,
                 int64_t kv_head) {
  KeySource keys;
  keys.pool = batch.pool;
  keys.pages = batch.sequences[sequence].pages;
  keys.first_page = batch.sequences[sequence].first_page;
  keys.key_width = shape.d_head;
  keys.value_width = shape.d_head;
  keys.key = KeyRows(shape, batch.dtype, kv_head);
  keys.value = ValueRows(shape, batch.dtype, kv_head);
  return keys;
}

KeySource KeysOf(const GlobalShape& shape, const AttentionBatch& batch, int64_t sequence,
                 int64_t /*kv_head*/) {
  KeySource keys;
  keys.pool = batch.pool;
  keys.pages = batch.sequences[sequence].pages;
  keys.first_page = batch.sequences[sequence].first_page;
  keys.key_width = shape.d_latent;
  keys.rope_width = shape.d_rope;
  keys.value_width = shape.d_latent;
  keys.key = LatentRows(shape, batch.dtype);
  keys.rope = RopeRows(shape, batch.dtype);
  keys.value_is_key = true;
  return keys;
}

KeySource KeysOf(const ShadowShape& shape, const AttentionBatch& batch, int64_t sequence,
                 int64_t kv_head) {
  KeySource keys;
  keys.pool = batch.pool;
  keys.pages = batch.sequences[sequence].pages;
  keys.first_page = batch.sequences[sequence].first_page;
  keys.key_width = shape.key_width();
  keys.value_width = shape.d_head;
  const int64_t element = DTypeSize(batch.dtype);
  const int64_t stride = shape.head_elements() * element;
  const int64_t begin = kv_head * kPageTokens * stride;
  const int64_t end = begin + kPageTokens * stride;
  keys.key = {batch.dtype, begin, stride, 0, end};
  keys.value = {batch.dtype, begin + shape.key_width() * element, stride, 0, end};
  return keys;
}

void LoadTile(const KernelTable& table, const AttentionForm& form, const AttentionBatch& batch,
              const AttentionTile& tile, WorkerScratch* scratch) {
  const int64_t depth = form.key_width + form.rope_width;
  for (int64_t panel = 0; panel * kPanel < tile.rows; ++panel) {
    const float* query[kPanel];
    const float* rope[kPanel] = {};
    for (int64_t lane = 0; lane < kPanel; ++lane) {
      // A lane without a row repeats the last row: it adds no masking.
      const int64_t p = std::min(panel * kPanel + lane, tile.rows - 1);
      const int64_t row = tile.row_begin + (tile.packed_begin + p) / form.group();
      scratch->lo[panel * kPanel + lane] = batch.lo[row];
      scratch->hi[panel * kPanel + lane] = batch.hi[row];
      query[lane] = PackedRow(form.query, form, tile, p, form.key_width);
      if (form.rope_width > 0) {
        rope[lane] = PackedRow(form.rope_query, form, tile, p, form.rope_width);
      }
    }
    float* to = scratch->attend.query + panel * depth * kPanel;
    table.pack_panel(query, form.key_width, batch.scale, to);
    table.pack_panel(rope, form.rope_width, batch.scale, to + form.key_width * kPanel);
    const int64_t head =
        tile.kv_head * form.group() + (tile.packed_begin + panel * kPanel) % form.group();
    scratch->rope_offset[panel] = head / form.rope_group * form.rope_width;
  }
}

void StoreTile(const KernelTable& table, const AttentionForm& form, const AttentionTile& tile,
               const SoftmaxState& state) {
  const int64_t width = RoundUp(form.value_width, kPanel);
  for (int64_t p = 0; p < tile.rows; ++p) {
    float* output = PackedRow(form.output, form, tile, p, form.value_width);
    const float sum = state.sum[p];
    if (sum == 0) {
      std::fill_n(output, form.value_width, 0.0f);
    } else {
      table.scale(state.values + p * width, form.value_width, 1 / sum, output);
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
  range.rope_offset = scratch->rope_offset;
  range.scratch = scratch->attend;
  while (begin < end) {
    range.key_begin = begin;
    range.key_end = std::min((begin / kRangeKeys + 1) * kRangeKeys, end);
    range.next_key = range.key_end < end ? range.key_end : -1;
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
