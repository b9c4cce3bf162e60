// Where the keys and values of a tile lie, how they become float32, and what to prefetch next.
#if defined(KERNELS_CPU_KEY_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_KEY_TILE_INL_H_
#undef KERNELS_CPU_KEY_TILE_INL_H_
#else
#define KERNELS_CPU_KEY_TILE_INL_H_
#endif

#include <type_traits>

#include "kernels/cpu/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::kernels {
namespace HWY_NAMESPACE {

// Rows of a page that are widened just before they are used, so that they are read from the
// first-level cache. Null: they are float32 and used where they lie.
struct StoredRows {
  const uint8_t* p = nullptr;
  int64_t stride = 0;             // bytes
  const float* scales = nullptr;  // of int8 alone
};

// Widens `count` rows of `width` elements from row `begin` on.
using WidenRows = void (*)(const StoredRows& rows, int64_t begin, int64_t count, int64_t width,
                           float* to, int64_t to_stride);

template <typename E>
void WidenRowsOf(const StoredRows& rows, int64_t begin, int64_t count, int64_t width, float* to,
                 int64_t to_stride) {
  for (int64_t t = 0; t < count; ++t) {
    E element;
    if constexpr (std::is_same_v<E, Int8Element>) {
      element.scale = rows.scales[begin + t];
    }
    WidenElements(element,
                  reinterpret_cast<const typename E::Stored*>(rows.p + (begin + t) * rows.stride),
                  width, to + t * to_stride);
  }
}

inline WidenRows WidenRowsFor(DType dtype) {
  WidenRows widen = WidenRowsOf<Int8Element>;
  DispatchElement(dtype, [&widen](auto element) { widen = WidenRowsOf<decltype(element)>; });
  return widen;
}

// Keys [begin, begin + count) of one page. Value rows that lie in place may be read up to the
// next multiple of 16 elements.
struct KeyTile {
  int64_t begin = 0;
  int64_t count = 0;
  WidenRows widen = nullptr;  // keys and values; rope keys may be of another dtype
  StridedRows key = {};
  StoredRows stored_key;               // widened to `key`, some rows at a time
  StridedRows rope[kTilePanels] = {};  // of each panel
  StridedRows value = {};
  StoredRows stored_value;  // widened some columns at a time
};

inline const uint8_t* PageOf(const KeySource& keys, int64_t token) {
  return keys.pool + keys.pages[token / kPageTokens - keys.first_page];
}

// The rows of `token` and those after it in its page.
inline StoredRows RowsFrom(const KeySource& keys, const PageRows& rows, int64_t token) {
  const uint8_t* page = PageOf(keys, token);
  const int64_t slot = token % kPageTokens;
  StoredRows stored{page + rows.offset + slot * rows.stride, rows.stride};
  if (rows.dtype == DType::kInt8) {
    stored.scales = reinterpret_cast<const float*>(page + rows.scales) + slot;
  }
  return stored;
}

inline StridedRows InPlace(const StoredRows& rows) {
  return {reinterpret_cast<const float*>(rows.p),
          rows.stride / static_cast<int64_t>(sizeof(float))};
}

// The rope keys of every panel; panels of one KV head share theirs.
inline void LoadRopeKeys(const AttendRange& range, KeyTile* tile) {
  const KeySource& keys = range.keys;
  const int64_t width = keys.rope_width;
  const WidenRows widen = WidenRowsFor(keys.rope.dtype);
  const StoredRows all = RowsFrom(keys, keys.rope, tile->begin);
  const int64_t panels = RoundUp(range.rows, kPanel) / kPanel;
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t offset = range.rope_offset[panel];
    if (panel > 0 && offset == range.rope_offset[panel - 1]) {
      tile->rope[panel] = tile->rope[panel - 1];
      continue;
    }
    const StoredRows rope{all.p + offset * DTypeSize(keys.rope.dtype), all.stride};
    if (keys.rope.dtype == DType::kF32) {
      tile->rope[panel] = InPlace(rope);
      continue;
    }
    float* to = range.scratch.rope + panel * kTileKeys * width;
    widen(rope, 0, tile->count, width, to, width);
    tile->rope[panel] = {to, width};
  }
}

// Where the tile's keys and values are, and whether they must be widened.
inline void LocateKeys(const AttendRange& range, KeyTile* tile) {
  const KeySource& keys = range.keys;
  tile->widen = WidenRowsFor(keys.key.dtype);
  if (keys.rope_width > 0) {
    LoadRopeKeys(range, tile);
  }
  if (keys.expanded_key != nullptr) {
    const int64_t skip = (tile->begin - keys.expanded_begin) * keys.expanded_stride;
    tile->key = {keys.expanded_key + skip, keys.expanded_stride};
    tile->value = {keys.expanded_value + skip, keys.expanded_stride};
    return;
  }
  const StoredRows key = RowsFrom(keys, keys.key, tile->begin);
  // One panel reads each value few times: a copy of what is float32 would not pay.
  const bool f32 = keys.key.dtype == DType::kF32;
  const bool in_place = f32 && range.rows <= kPanel;
  if (f32 && !keys.value_is_key) {
    tile->key = InPlace(key);
  } else {
    tile->key = {range.scratch.key, PaddedWidth(keys.key_width)};
    tile->stored_key = key;
  }
  if (keys.value_is_key) {
    tile->value = tile->key;
    return;
  }
  const StoredRows value = RowsFrom(keys, keys.value, tile->begin);
  if (in_place && keys.value_width % kPanel == 0) {
    tile->value = InPlace(value);
  } else {
    tile->stored_value = value;
    tile->value = {range.scratch.value, PaddedWidth(keys.value_width)};
  }
}

// The keys and values of the next tile of keys; nothing when they are not in pages.
struct NextTile {
  const uint8_t* key = nullptr;
  int64_t key_bytes = 0;
  const uint8_t* value = nullptr;
  int64_t value_bytes = 0;
};

inline NextTile NextOf(const AttendRange& range, const KeyTile& tile) {
  const KeySource& keys = range.keys;
  const int64_t end = tile.begin + tile.count;
  const int64_t token = end < range.key_end ? end : range.next_key;
  if (token < 0 || keys.expanded_key != nullptr) {
    return {};
  }
  const uint8_t* page = PageOf(keys, token);
  const uint8_t* key = RowsFrom(keys, keys.key, token).p;
  const int64_t key_bytes = page + keys.key.end - key;
  const bool one_row =
      keys.value.offset > keys.key.offset && keys.value.offset < keys.key.offset + keys.key.stride;
  if (keys.value_is_key || one_row) {
    const int64_t half = key_bytes / 2;
    return {key, half, key + half, key_bytes - half};
  }
  const uint8_t* value = RowsFrom(keys, keys.value, token).p;
  return {key, key_bytes, value, page + keys.value.end - value};
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::kernels
HWY_AFTER_NAMESPACE();

#endif
