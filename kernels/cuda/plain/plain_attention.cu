// A block takes a query head of a row at a time and goes through its keys by pages: a thread has a
// key's score, then columns of the values. Nothing but the row's own keys decides its bits.
#include "kernels/cuda/combine.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/elementwise/access.cuh"
#include "kernels/cuda/plain/plain_attention.h"

namespace attnd::kernels::cuda {
namespace {

inline constexpr int kThreads = 64;
inline constexpr int64_t kPageSlots = 64;
static_assert(kThreads == kPageSlots, "a thread has a key of the page");

struct PlainShared {
  Shared<float> query;    // [content_width + rope_width]
  Shared<float> scores;   // [64]
  Shared<float> weights;  // [64]
  Shared<float> sums;     // [value_width]
};

struct PlainRow {
  int64_t row = 0;  // of all heads' rows, as queries and outputs have them
  int64_t kv_head = 0;
  SequenceView sequence;
  int64_t lo = 0, hi = 0;
};

struct SoftmaxState {
  float max = -INFINITY;
  float sum = 0;
};

// False for a row that no sequence has.
__device__ bool FindRow(const PlainParams& p, int64_t work, PlainRow* found) {
  const int64_t heads = int64_t{p.heads_kv} * p.group;
  const int64_t row = work / heads;
  int32_t sequence = 0;
  int32_t above = p.batch.num_sequences;
  while (above - sequence > 1) {
    const int32_t middle = sequence + (above - sequence) / 2;
    if (p.batch.sequences[middle].row_begin <= row) {
      sequence = middle;
    } else {
      above = middle;
    }
  }
  found->sequence = p.batch.sequences[sequence];
  found->row = work;
  found->kv_head = work % heads / p.group;
  found->lo = p.batch.lo[row];
  found->hi = p.batch.hi[row];
  if (p.carry != nullptr) {
    found->lo = found->lo < p.carry_begin ? p.carry_begin : found->lo;
    found->hi = found->hi > p.carry_end ? p.carry_end : found->hi;
  }
  const int64_t begin = found->sequence.row_begin;
  return begin <= row && row < begin + found->sequence.rows;
}

__device__ void LoadQuery(const PlainParams& p, const PlainRow& row, const PlainShared& shared) {
  for (int i = ThreadIndex(); i < p.content_width; i += kThreads) {
    shared.query.Store(i, p.query[row.row * p.content_width + i]);
  }
  for (int i = ThreadIndex(); i < p.rope_width; i += kThreads) {
    shared.query.Store(p.content_width + i, p.rope_query[row.row * p.rope_width + i]);
  }
}

__device__ float Dot(DType dtype, const uint8_t* key, int width, const Shared<float>& query,
                     int at) {
  float sum = 0;
  for (int i = 0; i < width; ++i) {
    sum += query.Load(at + i) * LoadElement(dtype, key, i);
  }
  return sum;
}

__device__ const uint8_t* RowOf(const RowPlace& place, const uint8_t* page, int64_t head,
                                int64_t slot) {
  return page + place.offset + head * place.head_step + slot * place.stride;
}

__device__ float Score(const PlainParams& p, const PlainRow& row, const uint8_t* page, int32_t slot,
                       const Shared<float>& query) {
  float score =
      Dot(p.content.dtype, RowOf(p.content, page, row.kv_head, slot), p.content_width, query, 0) *
      LoadScale(p.content, page, slot);
  if (p.rope_width > 0) {
    score += Dot(p.rope.dtype, RowOf(p.rope, page, row.kv_head, slot), p.rope_width, query,
                 p.content_width);
  }
  return score * p.scale_log2;
}

// The keys [begin, end) of one page.
__device__ void AttendPage(const PlainParams& p, const PlainRow& row, int64_t begin, int64_t end,
                           const PlainShared& shared, SoftmaxState* state) {
  const int64_t page_index = begin / kPageSlots;
  const int64_t at = row.sequence.page_table + page_index - row.sequence.first_page;
  const uint8_t* page = p.batch.pool + p.batch.pages[at];
  const int first = static_cast<int>(begin - page_index * kPageSlots);
  const int last = static_cast<int>(end - page_index * kPageSlots);
  const int thread = ThreadIndex();
  const bool seen = first <= thread && thread < last;
  const float score = seen ? Score(p, row, page, thread, shared.query) : -INFINITY;
  shared.scores.Store(thread, score);
  SyncBlock();
  float max = state->max;
  for (int i = first; i < last; ++i) {
    const float other = shared.scores.Load(i);
    max = other > max ? other : max;
  }
  const float subtrahend = Subtrahend(max);
  const float weight = Exp2(score - subtrahend);
  const float scale = seen ? LoadScale(p.value, page, thread) : 0.0f;
  shared.weights.Store(thread, weight);
  SyncBlock();
  const float factor = Exp2(state->max - subtrahend);
  state->sum *= factor;
  for (int i = first; i < last; ++i) {
    state->sum += shared.weights.Load(i);
  }
  state->max = max;
  if (p.value.dtype == DType::kFp8E4M3) {
    SyncBlock();
    shared.weights.Store(thread, weight * scale);
    SyncBlock();
  }
  for (int column = thread; column < p.value_width; column += kThreads) {
    float sum = shared.sums.Load(column) * factor;
    for (int i = first; i < last; ++i) {
      const uint8_t* value = RowOf(p.value, page, row.kv_head, i);
      sum += shared.weights.Load(i) * LoadElement(p.value.dtype, value, column);
    }
    shared.sums.Store(column, sum);
  }
}

// A row of the carry: (m, l, O).
__device__ float* CarryRow(const PlainParams& p, const PlainRow& row) {
  return p.carry + row.row * (p.value_width + 2);
}

__device__ SoftmaxState LoadState(const PlainParams& p, const PlainRow& row,
                                  const Shared<float>& sums) {
  SoftmaxState state;
  const bool carried = p.carry != nullptr && !p.carry_first;
  const float* carry = carried ? CarryRow(p, row) : nullptr;
  if (carried) {
    state.max = carry[0];
    state.sum = carry[1];
  }
  const bool any = state.sum > 0;  // O of a state that saw nothing is not read
  for (int column = ThreadIndex(); column < p.value_width; column += kThreads) {
    sums.Store(column, any ? carry[2 + column] : 0.0f);
  }
  return state;
}

__device__ void StoreState(const PlainParams& p, const PlainRow& row, const SoftmaxState& state,
                           const Shared<float>& sums) {
  if (p.carry == nullptr || p.carry_last) {
    const float normalizer = Normalizer(state.sum);
    for (int column = ThreadIndex(); column < p.value_width; column += kThreads) {
      p.output[row.row * p.value_width + column] = sums.Load(column) * normalizer;
    }
    return;
  }
  float* carry = CarryRow(p, row);
  if (ThreadIndex() == 0) {
    carry[0] = state.max;
    carry[1] = state.sum;
  }
  for (int column = ThreadIndex(); column < p.value_width; column += kThreads) {
    carry[2 + column] = sums.Load(column);
  }
}

__global__ void PlainAttentionKernel(PlainParams p) {
  SharedCarver carver;
  PlainShared shared;
  shared.query = carver.Take<float>(p.content_width + p.rope_width);
  shared.scores = carver.Take<float>(kThreads);
  shared.weights = carver.Take<float>(kThreads);
  shared.sums = carver.Take<float>(p.value_width);
  const int64_t heads = int64_t{p.heads_kv} * p.group;
  for (int64_t work = BlockIndex().x; work < p.rows * heads; work += GridSize().x) {
    PlainRow row;
    if (!FindRow(p, work, &row)) {
      continue;
    }
    SyncBlock();  // the last row's query has been read
    LoadQuery(p, row, shared);
    SoftmaxState state = LoadState(p, row, shared.sums);
    SyncBlock();
    for (int64_t begin = row.lo; begin < row.hi;) {
      const int64_t page_end = (begin / kPageSlots + 1) * kPageSlots;
      const int64_t end = page_end < row.hi ? page_end : row.hi;
      AttendPage(p, row, begin, end, shared, &state);
      begin = end;
    }
    StoreState(p, row, state, shared.sums);
  }
}

int64_t Aligned(int64_t floats) { return (floats * 4 + 127) / 128 * 128; }

}  // namespace

int64_t PlainSharedBytes(int64_t content_width, int64_t rope_width, int64_t value_width) {
  return Aligned(content_width + rope_width) + 2 * Aligned(kThreads) + Aligned(value_width);
}

void LaunchPlainAttention(Stream& stream, int blocks, const PlainParams& params) {
  const int64_t shared =
      PlainSharedBytes(params.content_width, params.rope_width, params.value_width);
  Launch(stream, PlainAttentionKernel, {blocks, 1, 1}, kThreads, static_cast<int>(shared), params);
}

}  // namespace attnd::kernels::cuda
