// Online softmax attention of a tile of packed query rows over one range of keys.
//
// Query rows are packed 16 to a panel, so that a vector's lanes are rows: keys are the scalar
// operand of q . k and are read as they lie, maximum and sum of the softmax are taken lane by
// lane, and the scores come out as [key][row], which is the packed operand that p . v wants.
// Nothing is ever transposed.
#if defined(KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_ATTENTION_INL_H_
#undef KERNELS_CPU_ATTENTION_INL_H_
#else
#define KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/key_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::kernels {
namespace HWY_NAMESPACE {

// The panels of a tile that see some of its keys, and their valid rows.
struct PanelSpan {
  int64_t begin = 0;
  int64_t end = 0;
};

// scores[key][row] of one panel's rows, kVectors of whose lanes are in use.
template <int kVectors>
HWY_INLINE void PanelScores(const AttendRange& range, const KeyTile& tile, int64_t panel,
                            bool widen, Prefetcher* prefetch) {
  constexpr int kKeys = kRowsFor<kVectors>;
  const KeySource& keys = range.keys;
  const float* query = range.scratch.query + panel * (keys.key_width + keys.rope_width) * kPanel;
  const Columns<F32Element> key_part{query, kPanel, 0};
  const Columns<F32Element> rope_part{query + keys.key_width * kPanel, kPanel, 0};
  float* scores = range.scratch.scores + panel * kPanel;
  const StridedRows rope = tile.rope[panel];
  for (int64_t begin = 0; begin < tile.count; begin += kKeys) {
    if (widen) {
      tile.widen(tile.stored_key, begin, std::min<int64_t>(kKeys, tile.count - begin),
                 keys.key_width, range.scratch.key + begin * tile.key.row, tile.key.row);
    }
    DispatchRows<kKeys>(tile.count - begin, [&](auto count) HWY_ATTR {
      RegisterTile<decltype(count)::value, kVectors> sums;
      sums.Clear();
      AccumulateAndPrefetch(StridedRows{tile.key.p + begin * tile.key.row, tile.key.row}, key_part,
                            keys.key_width, prefetch, &sums);
      if (keys.rope_width > 0) {
        sums.Accumulate(StridedRows{rope.p + begin * rope.row, rope.row}, rope_part,
                        keys.rope_width);
      }
      sums.ForEach(WriteToArray{scores + begin * kTileRows, kTileRows});
    });
  }
}

// -infinity where a row of the panel does not see the key.
inline void MaskPanel(const AttendRange& range, const KeyTile& tile, int64_t panel, int vectors) {
  const Floats d;
  const V minus_infinity = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int j = 0; j < vectors; ++j) {
    float lo[kLanes];
    float hi[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t row = panel * kPanel + j * kLanes + lane;
      lo[lane] = static_cast<float>(std::clamp<int64_t>(range.lo[row] - tile.begin, 0, kTileKeys));
      hi[lane] = static_cast<float>(std::clamp<int64_t>(range.hi[row] - tile.begin, 0, kTileKeys));
    }
    const V first = hn::LoadU(d, lo);
    const V end = hn::LoadU(d, hi);
    float* scores = range.scratch.scores + panel * kPanel + j * kLanes;
    for (int64_t t = 0; t < tile.count; ++t) {
      const V key = hn::Set(d, static_cast<float>(t));
      const auto visible = hn::And(hn::Ge(key, first), hn::Lt(key, end));
      float* score = scores + t * kTileRows;
      hn::StoreU(hn::IfThenElse(visible, hn::LoadU(d, score), minus_infinity), d, score);
    }
  }
}

// The subtrahend of a row that has seen nothing yet: any number, so that -inf - m stays -inf.
HWY_INLINE V FiniteMax(V max) {
  const Floats d;
  const V minus_infinity = hn::Set(d, -std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::Eq(max, minus_infinity), hn::Zero(d), max);
}

// Scores to exponentials, maximum and sum of the panel's rows brought up to date, and the
// factor by which what was summed before shrinks.
inline void PanelSoftmax(const AttendRange& range, const KeyTile& tile, int64_t panel, int vectors,
                         float* shrink) {
  const Floats d;
  for (int j = 0; j < vectors; ++j) {
    const int64_t row = panel * kPanel + j * kLanes;
    float* scores = range.scratch.scores + row;
    const V old_max = hn::LoadU(d, range.state.max + row);
    V max = old_max;
    for (int64_t t = 0; t < tile.count; ++t) {
      max = hn::Max(max, hn::LoadU(d, scores + t * kTileRows));
    }
    const V subtrahend = FiniteMax(max);
    V sum = hn::Zero(d);
    for (int64_t t = 0; t < tile.count; ++t) {
      const V p = Exp(hn::Sub(hn::LoadU(d, scores + t * kTileRows), subtrahend));
      hn::StoreU(p, d, scores + t * kTileRows);
      sum = hn::Add(sum, p);
    }
    const V factor = Exp(hn::Sub(old_max, subtrahend));
    hn::StoreU(max, d, range.state.max + row);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, range.state.sum + row), factor, sum), d,
               range.state.sum + row);
    hn::StoreU(factor, d, shrink + row);
  }
}

// values <- values * shrink + p . v
struct ShrinkAndAdd {
  float* values;
  int64_t row_elements;
  const float* shrink;
  HWY_INLINE void operator()(int row, int j, V sum) const {
    const Floats d;
    float* value = values + row * row_elements + j * kLanes;
    hn::StoreU(hn::MulAdd(hn::LoadU(d, value), hn::Set(d, shrink[row]), sum), d, value);
  }
};

template <int kPanels>
HWY_INLINE void AddValueColumns(const AttendRange& range, const KeyTile& tile, int64_t row_begin,
                                int64_t row_end, int64_t column, const float* shrink,
                                Prefetcher* prefetch) {
  const int64_t width = RoundUp(range.keys.value_width, kPanel);
  const Columns<F32Element> value{tile.value.p + column, tile.value.row, kPanel};
  for (int64_t row = row_begin; row < row_end; row += kManyRows) {
    const PackedRows p{range.scratch.scores + row, kTileRows};
    DispatchRows<kManyRows>(row_end - row, [&](auto count) HWY_ATTR {
      RegisterTile<decltype(count)::value, kPanels * kPanelVectors> sums;
      sums.Clear();
      AccumulateAndPrefetch(p, value, tile.count, prefetch, &sums);
      sums.ForEach(ShrinkAndAdd{range.state.values + row * width + column, width, shrink + row});
    });
  }
}

inline void AddValues(const AttendRange& range, const KeyTile& tile, PanelSpan span,
                      const float* shrink, const NextTile& next) {
  const int64_t row_begin = span.begin * kPanel;
  const int64_t row_end = std::min(span.end * kPanel, range.rows);
  const int64_t blocks = RoundUp(range.keys.value_width, kManyPanels * kPanel) / kPanel;
  Prefetcher prefetch(next.value, next.value_bytes,
                      std::max<int64_t>(1, blocks * ((row_end - row_begin) / kManyRows + 1) *
                                               (tile.count / kPrefetchDepth)));
  int64_t column = 0;
  for (; column + kManyPanels * kPanel <= range.keys.value_width; column += kManyPanels * kPanel) {
    AddValueColumns<kManyPanels>(range, tile, row_begin, row_end, column, shrink, &prefetch);
  }
  for (; column < range.keys.value_width; column += kPanel) {
    AddValueColumns<1>(range, tile, row_begin, row_end, column, shrink, &prefetch);
  }
}

// Vectors of the panel that hold rows, as the next power of two.
inline int UsedVectors(const AttendRange& range, int64_t panel) {
  const int64_t rows = std::min(range.rows - panel * kPanel, kPanel);
  int vectors = 1;
  while (vectors * kLanes < rows) {
    vectors *= 2;
  }
  return vectors;
}

template <int kVectors = kPanelVectors>
HWY_INLINE void Scores(const AttendRange& range, const KeyTile& tile, int64_t panel, int vectors,
                       bool widen, Prefetcher* prefetch) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) {
      Scores<kVectors / 2>(range, tile, panel, vectors, widen, prefetch);
      return;
    }
  }
  PanelScores<kVectors>(range, tile, panel, widen, prefetch);
}

inline void AttendTile(const AttendRange& range, const KeyTile& tile) {
  const int64_t end = tile.begin + tile.count;
  const int64_t panels = RoundUp(range.rows, kPanel) / kPanel;
  // Intervals ascend with the row, so the panels that see some of the tile are neighbours.
  PanelSpan span{0, panels};
  while (span.begin < span.end && range.hi[span.begin * kPanel + kPanel - 1] <= tile.begin) {
    ++span.begin;
  }
  while (span.begin < span.end && range.lo[(span.end - 1) * kPanel] >= end) {
    --span.end;
  }
  float shrink[kTileRows];
  const NextTile next = NextOf(range, tile);
  Prefetcher prefetch(next.key, next.key_bytes,
                      std::max<int64_t>(1, (span.end - span.begin) * (tile.count / kManyRows + 1) *
                                               (range.keys.key_width / kPrefetchDepth)));
  for (int64_t panel = span.begin; panel < span.end; ++panel) {
    const int vectors = UsedVectors(range, panel);
    const bool widen = panel == span.begin && tile.stored_key.p != nullptr;
    Scores(range, tile, panel, vectors, widen, &prefetch);
    const int64_t first = panel * kPanel;
    if (range.lo[first + kPanel - 1] > tile.begin || range.hi[first] < end) {
      MaskPanel(range, tile, panel, vectors);
    }
    PanelSoftmax(range, tile, panel, vectors, shrink);
  }
  if (tile.stored_value.p != nullptr) {
    tile.widen(tile.stored_value, 0, tile.count, range.keys.value_width, range.scratch.value,
               PaddedWidth(range.keys.value_width));
  }
  AddValues(range, tile, span, shrink, next);
}

void Attend(const AttendRange& range) {
  const int64_t width = RoundUp(range.keys.value_width, kPanel);
  std::fill_n(range.state.max, kTileRows, -std::numeric_limits<float>::infinity());
  std::fill_n(range.state.sum, kTileRows, 0.0f);
  std::fill_n(range.state.values, range.rows * width, 0.0f);
  for (int64_t begin = range.key_begin; begin < range.key_end;) {
    KeyTile tile;
    tile.begin = begin;
    tile.count = std::min(kTileKeys - begin % kTileKeys, range.key_end - begin);
    LocateKeys(range, &tile);
    AttendTile(range, tile);
    begin += tile.count;
  }
}

// Merging with a part that saw nothing, or into a total that did, changes no bit of the other.
void Merge(const SoftmaxState& total, const SoftmaxState& part, int64_t rows, int64_t width) {
  const Floats d;
  for (int64_t begin = 0; begin < rows; begin += kLanes) {
    float keep[kLanes];
    float add[kLanes];
    const V total_max = hn::LoadU(d, total.max + begin);
    const V part_max = hn::LoadU(d, part.max + begin);
    const V max = hn::Max(total_max, part_max);
    const V keep_v = Exp(hn::Sub(total_max, FiniteMax(max)));
    const V add_v = Exp(hn::Sub(part_max, FiniteMax(max)));
    const V sum = hn::Mul(hn::LoadU(d, part.sum + begin), add_v);
    hn::StoreU(max, d, total.max + begin);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, total.sum + begin), keep_v, sum), d, total.sum + begin);
    hn::StoreU(keep_v, d, keep);
    hn::StoreU(add_v, d, add);
    for (int64_t row = begin; row < std::min<int64_t>(begin + kLanes, rows); ++row) {
      float* to = total.values + row * width;
      const float* from = part.values + row * width;
      const V keep_row = hn::Set(d, keep[row - begin]);
      const V add_row = hn::Set(d, add[row - begin]);
      for (int64_t n = 0; n < width; n += kLanes) {
        const V scaled = hn::Mul(hn::LoadU(d, from + n), add_row);
        hn::StoreU(hn::MulAdd(hn::LoadU(d, to + n), keep_row, scaled), d, to + n);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::kernels
HWY_AFTER_NAMESPACE();

#endif
