// The small kernels: rotations, conversions, rows into pages and out of them.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "kernels/cache_layout.h"
#include "kernels/convert.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/random.h"
#include "tests/gpu/values.h"

namespace attnd::gpu {
namespace {

using namespace kernels::cuda;
using kernels::GlobalShape;
using kernels::LocalShape;
using kernels::PageRows;

constexpr int kBlocks = 7;  // fewer than there are items: every block loops

// Rows of a batch, their places in pages, and one value each that is not finite.
struct Rows {
  explicit Rows(Device& device, int64_t n, int64_t page_bytes, Random& random)
      : count(n), pool(static_cast<size_t>(kPages * page_bytes), 0xff) {
    for (int64_t r = 0; r < n; ++r) {
      page.push_back(random.Below(kPages / 2) * 2 * page_bytes + (r % 2) * page_bytes);
      slot.push_back(static_cast<int32_t>(r % 64));
    }
    device_page.emplace(device, page);
    device_slot.emplace(device, slot);
    device_pool.emplace(device, pool);
    not_finite.emplace(device, std::vector<uint8_t>(static_cast<size_t>(n), 0));
  }
  kernels::AppendTarget Target(DType dtype) const {
    kernels::AppendTarget target;
    target.pool = device_pool->data();
    target.dtype = dtype;
    target.page = device_page->data();
    target.slot = device_slot->data();
    target.not_finite = not_finite->data();
    target.rows = count;
    return target;
  }

  static constexpr int64_t kPages = 6;
  int64_t count;
  std::vector<uint8_t> pool;
  std::vector<int64_t> page;
  std::vector<int32_t> slot;
  std::optional<Buffer<int64_t>> device_page;
  std::optional<Buffer<int32_t>> device_slot;
  std::optional<Buffer<uint8_t>> device_pool, not_finite;
};

// Row 7 has zeros alone, row 9 what overflows f16; with `bad` row 3 has a NaN and row 5 an
// infinity.
std::vector<float> RowsWithTraps(Random& random, int64_t rows, int64_t width, bool bad) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * width; ++i) {
    const int64_t row = i / width, k = i % width;
    const float value = random.Float();
    values.push_back(row == 7                            ? 0.0f
                     : row == 9 && k == width - 1        ? 1e5f
                     : bad && row == 3 && k == width / 2 ? NAN
                     : bad && row == 5 && k == 0         ? -INFINITY
                                                         : value);
  }
  return values;
}

// With `bad` the flags alone: which NaN is stored is a device's own affair.
void ComparePools(Report& report, const std::string& name, const Rows& rows, bool bad,
                  const std::vector<uint8_t>& not_finite) {
  if (!bad) {
    report.Same("elementwise", name, rows.device_pool->Get(), rows.pool);
  }
  report.Same("elementwise", name + (bad ? ", NaN and infinity" : "") + ": flags",
              rows.not_finite->Get(), not_finite);
}

void CheckAppendLocal(Device& device, Report& report, DType dtype, bool bad, Random& random) {
  const LocalShape shape{12, 3, 40};
  Rows rows(device, 50, kernels::PageBytes(shape, dtype), random);
  const int64_t width = shape.heads_kv * shape.d_head;
  const std::vector<float> key = RowsWithTraps(random, rows.count, width, bad);
  const std::vector<float> value = random.Floats(rows.count * width);
  const Buffer<float> device_key(device, key), device_value(device, value);
  LaunchAppendLocal(device.stream(), kBlocks,
                    {shape, rows.Target(dtype), device_key.data(), device_value.data()});
  device.Synchronize("appending local rows");
  std::vector<uint8_t> not_finite(static_cast<size_t>(rows.count), 0);
  for (int64_t r = 0; r < rows.count; ++r) {
    const size_t at = static_cast<size_t>(r);
    for (int64_t h = 0; h < shape.heads_kv; ++h) {
      uint8_t* page = rows.pool.data() + rows.page[at];
      const int64_t from = r * width + h * shape.d_head;
      const bool finite = kernels::StoreRow(kernels::KeyRows(shape, dtype, h), rows.slot[at],
                                            key.data() + from, shape.d_head, page) &
                          kernels::StoreRow(kernels::ValueRows(shape, dtype, h), rows.slot[at],
                                            value.data() + from, shape.d_head, page);
      not_finite[at] |= !finite;
    }
  }
  ComparePools(report, std::string("append local ") + DTypeName(dtype), rows, bad, not_finite);
}

void CheckAppendGlobal(Device& device, Report& report, DType dtype, bool bad, Random& random) {
  const GlobalShape shape{12, 3, 40, 16, 80};
  Rows rows(device, 50, kernels::PageBytes(shape, dtype), random);
  const int64_t rope_width = shape.heads_kv * shape.d_rope;
  const std::vector<float> latent = RowsWithTraps(random, rows.count, shape.d_latent, bad);
  const std::vector<float> rope = random.Floats(rows.count * rope_width);
  const Buffer<float> device_latent(device, latent), device_rope(device, rope);
  LaunchAppendGlobal(device.stream(), kBlocks,
                     {shape, rows.Target(dtype), device_latent.data(), device_rope.data()});
  device.Synchronize("appending global rows");
  std::vector<uint8_t> not_finite(static_cast<size_t>(rows.count), 0);
  for (int64_t r = 0; r < rows.count; ++r) {
    const size_t at = static_cast<size_t>(r);
    uint8_t* page = rows.pool.data() + rows.page[at];
    const bool finite =
        kernels::StoreRow(kernels::LatentRows(shape, dtype), rows.slot[at],
                          latent.data() + r * shape.d_latent, shape.d_latent, page) &
        kernels::StoreRow(kernels::RopeRows(shape, dtype), rows.slot[at],
                          rope.data() + r * rope_width, rope_width, page);
    not_finite[at] = !finite;
  }
  ComparePools(report, std::string("append global ") + DTypeName(dtype), rows, bad, not_finite);
}

void CheckRope(Device& device, Report& report, Random& random) {
  const int64_t n = 33, heads = 3, half = 20;
  const std::vector<float> x = random.Floats(n * heads * 2 * half);
  const std::vector<float> cos = random.Floats(n * half), sin = random.Floats(n * half);
  const Buffer<float> device_x(device, x), device_cos(device, cos), device_sin(device, sin);
  LaunchRope(device.stream(), kBlocks,
             {device_x.data(), device_cos.data(), device_sin.data(), n, heads, half});
  device.Synchronize("the rope kernel");
  std::vector<double> want(x.size());
  for (int64_t i = 0; i < n * heads * half; ++i) {
    const size_t angle = static_cast<size_t>(i / (heads * half) * half + i % half);
    const size_t even = static_cast<size_t>(2 * i);
    want[even] = double{x[even]} * cos[angle] - double{x[even + 1]} * sin[angle];
    want[even + 1] = double{x[even + 1]} * cos[angle] + double{x[even]} * sin[angle];
  }
  report.Near("elementwise", "rope", device_x.Get(), want, 1e-7);
}

// Rows to padded groups of a dtype and back: what comes back is what the dtype kept.
void CheckPackAndUnpack(Device& device, Report& report, DType dtype, Random& random) {
  const int64_t n = 37, inner = 3, width = 24, groups = 2, padded = 64;
  const std::vector<float> x = random.Floats(n * groups * inner * width);
  const Buffer<float> device_x(device, x);
  const Buffer<uint8_t> packed(device, groups * padded * width * DTypeSize(dtype));
  PackRowsParams params;
  params.x = device_x.data();
  params.packed = packed.data();
  params.from = {groups * inner * width, width, static_cast<int32_t>(inner)};
  params.dtype = dtype;
  params.row_begin = 6;
  params.rows = 50;
  params.padded = padded;
  params.width = width;
  params.groups = static_cast<int32_t>(groups);
  LaunchPackRows(device.stream(), kBlocks, params);
  device.Synchronize("packing rows");
  const int64_t count = groups * padded * width;
  std::vector<float> got(static_cast<size_t>(count)), want(static_cast<size_t>(count), 0.0f);
  kernels::ToFloat(dtype, packed.Get().data(), count, got.data());
  std::vector<float> kept = Stored(dtype, x, 1), back(x.size(), -1.0f);
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t m = 6; m < 56; ++m) {
      const int64_t from = m / inner * groups * inner * width + (g * inner + m % inner) * width;
      for (int64_t k = 0; k < width; ++k) {
        const size_t at = static_cast<size_t>(from + k);
        want[static_cast<size_t>((g * padded + m - 6) * width + k)] = kept[at];
        back[at] = kept[at];
      }
    }
  }
  report.Same("elementwise", std::string("pack rows ") + DTypeName(dtype), got, want);
  const Buffer<float> product(device, got), y(device, std::vector<float>(x.size(), -1.0f));
  LaunchUnpackRows(
      device.stream(), kBlocks,
      {product.data(), y.data(), params.from, 6, 50, padded, width, static_cast<int32_t>(groups)});
  device.Synchronize("unpacking rows");
  report.Same("elementwise", std::string("unpack rows ") + DTypeName(dtype), y.Get(), back);
}

// Latents out of pages, and expanded keys and values into pages of their own.
void CheckExpand(Device& device, Report& report, DType cache, DType dtype, Random& random) {
  const GlobalShape shape{6, 3, 40, 16, 80};
  RaggedBatch batch(device, {RowsOf(100, 200, 0, 0)}, kernels::PageBytes(shape, cache), random);
  const int64_t rope_width = shape.heads_kv * shape.d_rope, tokens = 90, padded = 128, first = 64;
  const PageRows latent_rows = kernels::LatentRows(shape, cache);
  const PageRows rope_rows = kernels::RopeRows(shape, cache);
  const std::vector<float> latent = random.Floats(200 * shape.d_latent);
  const std::vector<float> rope = random.Floats(200 * rope_width);
  for (int64_t t = 0; t < 200; ++t) {
    kernels::StoreRow(latent_rows, t % 64, latent.data() + t * shape.d_latent, shape.d_latent,
                      batch.Page(0, t));
    kernels::StoreRow(rope_rows, t % 64, rope.data() + t * rope_width, rope_width,
                      batch.Page(0, t));
  }
  batch.Upload();
  const std::string name = std::string(DTypeName(cache)) + " as " + DTypeName(dtype);
  const int64_t size = DTypeSize(dtype);
  const Buffer<uint8_t> gathered(device, padded * shape.d_latent * size);
  GatherLatentsParams gather;
  gather.pool = batch.DevicePool();
  gather.pages = batch.View().pages;
  gather.latents = {latent_rows.dtype, latent_rows.offset, 0, latent_rows.stride,
                    latent_rows.scales};
  gather.gathered = gathered.data();
  gather.dtype = dtype;
  gather.first = first;
  gather.tokens = tokens;
  gather.padded = padded;
  gather.width = shape.d_latent;
  LaunchGatherLatents(device.stream(), kBlocks, gather);
  device.Synchronize("gathering latents");
  std::vector<float> want = Stored(dtype, Stored(cache, latent, shape.d_latent), 1);
  want.erase(want.begin(), want.begin() + first * shape.d_latent);
  want.resize(static_cast<size_t>(tokens * shape.d_latent));
  want.resize(static_cast<size_t>(padded * shape.d_latent), 0.0f);
  std::vector<float> got(want.size());
  kernels::ToFloat(dtype, gathered.Get().data(), static_cast<int64_t>(got.size()), got.data());
  report.Same("elementwise", "gather latents " + name, got, want);

  const int64_t key_width = shape.d_head + shape.d_rope;
  const int64_t page = shape.heads_kv * 64 * (key_width + shape.d_head);
  const Buffer<float> keys(device, random.Floats(shape.heads_kv * padded * shape.d_head));
  const Buffer<float> values(device, random.Floats(shape.heads_kv * padded * shape.d_head));
  const Buffer<uint8_t> expanded(device,
                                 std::vector<uint8_t>(static_cast<size_t>(2 * page * size)));
  WriteExpandedParams write;
  write.pool = gather.pool;
  write.pages = gather.pages;
  write.ropes = {rope_rows.dtype, rope_rows.offset, shape.d_rope * DTypeSize(rope_rows.dtype),
                 rope_rows.stride, 0};
  write.keys = keys.data();
  write.values = values.data();
  write.expanded = expanded.data();
  write.dtype = dtype;
  write.first = first;
  write.tokens = tokens;
  write.padded = padded;
  write.heads_kv = static_cast<int32_t>(shape.heads_kv);
  write.d_head = static_cast<int32_t>(shape.d_head);
  write.d_rope = static_cast<int32_t>(shape.d_rope);
  LaunchWriteExpanded(device.stream(), kBlocks, write);
  device.Synchronize("writing expanded keys");
  const std::vector<float> kept_keys = Stored(dtype, keys.Get(), 1);
  const std::vector<float> kept_values = Stored(dtype, values.Get(), 1);
  const std::vector<float> kept_ropes = Stored(dtype, Stored(rope_rows.dtype, rope, 1), 1);
  std::vector<float> pages(static_cast<size_t>(2 * page), 0.0f);
  for (int64_t h = 0; h < shape.heads_kv; ++h) {
    for (int64_t i = 0; i < tokens; ++i) {
      const auto key = pages.begin() + i / 64 * page + (h * 64 + i % 64) * key_width;
      const auto value = pages.begin() + i / 64 * page + shape.heads_kv * 64 * key_width +
                         (h * 64 + i % 64) * shape.d_head;
      const int64_t from = (h * padded + i) * shape.d_head;
      const auto rope_from = kept_ropes.begin() + (first + i) * rope_width + h * shape.d_rope;
      std::copy_n(kept_keys.begin() + from, shape.d_head, key);
      std::copy_n(rope_from, shape.d_rope, key + shape.d_head);
      std::copy_n(kept_values.begin() + from, shape.d_head, value);
    }
  }
  got.resize(pages.size());
  kernels::ToFloat(dtype, expanded.Get().data(), 2 * page, got.data());
  report.Same("elementwise", "write expanded " + name, got, pages);
}

}  // namespace

void CheckElementwise(Device& device, Report& report, Size) {
  Random random(11);
  CheckRope(device, report, random);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    CheckPackAndUnpack(device, report, dtype, random);
    CheckExpand(device, report, dtype, dtype, random);
  }
  CheckExpand(device, report, DType::kFp8E4M3, DType::kBF16, random);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kFp8E4M3}) {
    for (bool bad : {false, true}) {
      CheckAppendLocal(device, report, dtype, bad, random);
      CheckAppendGlobal(device, report, dtype, bad, random);
    }
  }
}

}  // namespace attnd::gpu
