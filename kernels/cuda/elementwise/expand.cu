// Around the expansion of latents to keys and values: latents out of pages, keys and values into
// pages of their own with the rope key beside them. A block takes a token, or one of its KV heads,
// at a time.
#include "kernels/cuda/elementwise/access.cuh"
#include "kernels/cuda/elementwise/elementwise.h"

namespace attnd::kernels::cuda {
namespace {

inline constexpr int kThreads = 128;
inline constexpr int64_t kPageSlots = 64;

__global__ void GatherLatentsKernel(GatherLatentsParams p) {
  for (int64_t w = BlockIndex().x; w < p.padded; w += GridSize().x) {
    const bool used = w < p.tokens;
    const int64_t token = p.first + w;
    const int32_t slot = static_cast<int32_t>(token % kPageSlots);
    const uint8_t* page = used ? p.pool + p.pages[token / kPageSlots - p.first_page] : nullptr;
    const uint8_t* row = used ? page + p.latents.offset + slot * p.latents.stride : nullptr;
    const float scale = used ? LoadScale(p.latents, page, slot) : 0.0f;
    for (int64_t k = ThreadIndex(); k < p.width; k += kThreads) {
      const float value = used ? LoadElement(p.latents.dtype, row, k) * scale : 0.0f;
      StoreElement(p.dtype, p.gathered, w * p.width + k, value);
    }
  }
}

__global__ void WriteExpandedKernel(WriteExpandedParams p) {
  const int64_t key_width = p.d_head + p.d_rope;
  const int64_t page_elements = p.heads_kv * kPageSlots * (key_width + p.d_head);
  for (int64_t w = BlockIndex().x; w < p.tokens * p.heads_kv; w += GridSize().x) {
    const int64_t head = w % p.heads_kv;
    const int64_t at = w / p.heads_kv;
    const int64_t token = p.first + at;
    const int64_t slot = token % kPageSlots;
    const uint8_t* rope = p.pool + p.pages[token / kPageSlots - p.first_page] + p.ropes.offset +
                          slot * p.ropes.stride + head * p.ropes.head_step;
    const int64_t page = (token / kPageSlots - p.first / kPageSlots) * page_elements;
    const int64_t key = page + (head * kPageSlots + slot) * key_width;
    const int64_t value =
        page + p.heads_kv * kPageSlots * key_width + (head * kPageSlots + slot) * p.d_head;
    const int64_t from = (head * p.padded + at) * p.d_head;
    for (int64_t k = ThreadIndex(); k < key_width + p.d_head; k += kThreads) {
      if (k < p.d_head) {
        StoreElement(p.dtype, p.expanded, key + k, p.keys[from + k]);
      } else if (k < key_width) {
        StoreElement(p.dtype, p.expanded, key + k, LoadElement(p.ropes.dtype, rope, k - p.d_head));
      } else {
        StoreElement(p.dtype, p.expanded, value + k - key_width, p.values[from + k - key_width]);
      }
    }
  }
}

}  // namespace

void LaunchGatherLatents(Stream& stream, int blocks, const GatherLatentsParams& params) {
  Launch(stream, GatherLatentsKernel, {blocks, 1, 1}, kThreads, 0, params);
}

void LaunchWriteExpanded(Stream& stream, int blocks, const WriteExpandedParams& params) {
  Launch(stream, WriteExpandedKernel, {blocks, 1, 1}, kThreads, 0, params);
}

}  // namespace attnd::kernels::cuda
