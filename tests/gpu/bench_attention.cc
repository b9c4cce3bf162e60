#include "tests/gpu/bench_attention.h"

#include <algorithm>

namespace attnd::gpu {
namespace {

using kernels::cuda::SequenceView;

std::vector<SequenceView> Views(int64_t sessions, int64_t rows, int64_t keys, int64_t window) {
  std::vector<SequenceView> views;
  const int64_t table = (keys + 63) / 64;
  for (int64_t s = 0; s < sessions; ++s) {
    SequenceView view;
    view.key_begin = window > 0 ? std::max<int64_t>(0, keys - rows + 1 - window) : 0;
    view.key_end = keys;
    view.first_page = view.key_begin / 64;
    view.page_table = s * table;
    view.row_begin = static_cast<int32_t>(s * rows);
    view.rows = static_cast<int32_t>(rows);
    views.push_back(view);
  }
  return views;
}

std::vector<int64_t> Bounds(int64_t sessions, int64_t rows, int64_t keys, int64_t window,
                            bool high) {
  std::vector<int64_t> bounds;
  for (int64_t i = 0; i < sessions * rows; ++i) {
    const int64_t row = keys - rows + i % rows;
    bounds.push_back(high ? row + 1 : window > 0 ? std::max<int64_t>(0, row + 1 - window) : 0);
  }
  return bounds;
}

// Pages of all sessions in random order.
std::vector<int64_t> Pages(int64_t count, int64_t page_bytes) {
  std::vector<int64_t> pages;
  for (int64_t i = 0; i < count; ++i) {
    pages.push_back(i * page_bytes);
  }
  Random random(7);
  for (size_t i = pages.size(); i > 1; --i) {
    std::swap(pages[i - 1], pages[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
  }
  return pages;
}

}  // namespace

BenchBatch::BenchBatch(Device& device, int64_t sessions, int64_t rows, int64_t keys, int64_t window,
                       int64_t page_bytes)
    : views_(device, Views(sessions, rows, keys, window)),
      lo_(device, Bounds(sessions, rows, keys, window, false)),
      hi_(device, Bounds(sessions, rows, keys, window, true)),
      pages_(device, Pages(sessions * ((keys + 63) / 64), page_bytes)),
      pool_(std::make_unique<Buffer<uint8_t>>(device, pages_.size() * page_bytes)) {
  const std::vector<int64_t> lo = lo_.Get(), hi = hi_.Get();
  for (size_t i = 0; i < lo.size(); ++i) {
    visible_ += hi[i] - lo[i];
  }
  loaded_ = sessions * (keys - lo.front());
  FillWithNumbers(device, pool_->data(), pool_->size());
}

kernels::cuda::BatchView BenchBatch::View() const {
  kernels::cuda::BatchView view;
  view.pool = pool_->data();
  view.sequences = views_.data();
  view.pages = pages_.data();
  view.lo = lo_.data();
  view.hi = hi_.data();
  view.num_sequences = static_cast<int32_t>(sessions());
  return view;
}

// 0x38 to 0x3b in every second byte: about 1e-5 to 2e-2 in bf16, 0.5 to 1 in f16, 1 to 1.4 in e4m3;
// signs and the other bytes at random (e4m3 as scale: a small float32).
void FillWithNumbers(Device& device, void* memory, int64_t bytes) {
  const int64_t block = std::min<int64_t>(bytes, 64 << 20);
  std::vector<uint8_t> values(static_cast<size_t>(block));
  Random random(3);
  for (size_t i = 0; i + 1 < values.size(); i += 2) {
    const uint64_t bits = random.Next();
    values[i] = static_cast<uint8_t>(bits & 0x7e);
    values[i + 1] = static_cast<uint8_t>(0x38 | (bits >> 8 & 3) | (bits >> 16 & 0x80));
  }
  for (int64_t at = 0; at < bytes; at += block) {
    device.ToDevice(static_cast<uint8_t*>(memory) + at, values.data(), std::min(block, bytes - at));
  }
}

}  // namespace attnd::gpu
