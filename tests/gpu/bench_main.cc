// gpu_bench [--seconds N] [--out FILE]: times on the device, against what the device reaches itself
// in the same run (a copy, a product of cuBLAS). A line of JSON for each row.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "kernels/cache_layout.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/gqa/gqa.h"
#include "kernels/cuda/latent/latent.h"
#include "tests/gpu/bench.h"
#include "tests/gpu/bench_attention.h"

namespace attnd::gpu {
namespace {

using namespace kernels::cuda;
using kernels::GlobalShape;
using kernels::LocalShape;
using kernels::PageRows;

std::string Count(int64_t n) { return std::to_string(n); }

float ScaleLog2(int64_t width) {
  return static_cast<float>(std::log2(std::exp(1.0)) / std::sqrt(static_cast<double>(width)));
}

// A schedule and what a batch needs to be launched with it.
struct Scheduled {
  Scheduled(Device& device, const BenchBatch& batch, const TileShape& tiles, int64_t tile_rows,
            int64_t value_width, int launch_blocks)
      : blocks(launch_blocks),
        // Twice what runs at once, or every tile of a batch that is not split.
        memory(device, batch.sessions(),
               std::max<int64_t>(
                   2 * launch_blocks,
                   batch.sessions() *
                       TileCount(tiles, static_cast<int32_t>(batch.rows() / batch.sessions()))),
               tile_rows, value_width) {
    params.sequences = batch.View().sequences;
    params.schedule = memory.Get();
    params.tiles = tiles;
    params.num_sequences = batch.View().num_sequences;
    params.blocks = blocks;
  }
  int blocks;
  ScheduleMemory memory;
  ScheduleParams params;
};

struct LatentRow {
  const char* name;
  GlobalShape shape;
  DType cache;
  int64_t sessions, rows, keys;
  double target_ns;     // a cached token, session and layer; 0: none
  double target_share;  // of the copy's bytes a second; 0: none
};

// The scheduling kernel is timed with the attention: a step runs both.
void BenchLatent(Bench& bench, const LatentRow& r) {
  Device& device = bench.device();
  const BenchBatch batch(device, r.sessions, r.rows, r.keys, 0,
                         kernels::PageBytes(r.shape, r.cache));
  const PageRows latents = kernels::LatentRows(r.shape, r.cache);
  const PageRows ropes = kernels::RopeRows(r.shape, r.cache);
  const int64_t pairs = batch.rows() * r.shape.heads_q;
  const Buffer<float> query(device, pairs * r.shape.d_latent), rope(device, pairs * r.shape.d_rope);
  const Buffer<float> output(device, pairs * r.shape.d_latent);
  FillWithNumbers(device, query.data(), query.size() * 4);
  FillWithNumbers(device, rope.data(), rope.size() * 4);
  LatentParams params;
  params.batch = batch.View();
  params.latent_offset = latents.offset;
  params.latent_stride = latents.stride;
  params.scales = latents.scales;
  params.rope_offset = ropes.offset;
  params.rope_stride = ropes.stride;
  params.query = query.data();
  params.rope_query = rope.data();
  params.output = output.data();
  params.heads_kv = static_cast<int32_t>(r.shape.heads_kv);
  params.group = static_cast<int32_t>(r.shape.group());
  params.d_latent = static_cast<int32_t>(r.shape.d_latent);
  params.d_rope = static_cast<int32_t>(r.shape.d_rope);
  params.scale_log2 = ScaleLog2(r.shape.d_head + r.shape.d_rope);
  const LatentPlan plan = PlanLatent(r.cache, params, device.info().block_shared_bytes);
  if (!plan.ok()) {
    return;
  }
  Scheduled scheduled(device, batch, LatentTiles(plan, params), plan.tile_rows(), r.shape.d_latent,
                      device.info().multiprocessors);
  params.schedule = scheduled.params.schedule;
  const double seconds = bench.Seconds([&] {
    LaunchSchedule(device.stream(), scheduled.params);
    LaunchLatent(device.stream(), r.cache, plan, params, scheduled.blocks);
  });
  const double tokens = static_cast<double>(batch.loaded());
  const double share = tokens * static_cast<double>(kernels::TokenBytes(r.shape, r.cache)) /
                       seconds / bench.ceilings().copy_bytes_per_second;
  const double ns = seconds * 1e9 / tokens;
  const std::string name = std::string(r.name) + " " + DTypeName(r.cache) + ", " +
                           Count(r.sessions) + " x " + Count(r.rows) + " rows, " + Count(r.keys) +
                           " keys";
  if (r.target_ns > 0) {
    char target[64];
    std::snprintf(target, sizeof target, "<= %.2f ns a token", r.target_ns);
    bench.Row(name, seconds, ns, "ns a token", share, target, ns <= r.target_ns);
  } else if (r.target_share > 0) {
    char target[64];
    std::snprintf(target, sizeof target, ">= %.0f %% of copy", 100 * r.target_share);
    bench.Row(name, seconds, ns, "ns a token", share, target, share >= r.target_share);
  } else {
    bench.Row(name, seconds, ns, "ns a token", share);
  }
}

struct GqaRow {
  const char* name;
  int64_t heads_kv, group, content, rope, value;
  int64_t sessions, rows, keys, window;
};

struct GqaTime {
  double seconds = 0;
  double flop = 0;
  double bytes = 0;
};

GqaTime TimeGqa(Bench& bench, const GqaRow& r) {
  Device& device = bench.device();
  const int64_t key_bytes = 2 * (r.content + r.rope), value_bytes = 2 * r.value;
  const BenchBatch batch(device, r.sessions, r.rows, r.keys, r.window,
                         64 * r.heads_kv * (key_bytes + value_bytes));
  const int64_t pairs = batch.rows() * r.heads_kv * r.group;
  const Buffer<float> query(device, pairs * r.content), rope(device, pairs * r.rope);
  const Buffer<float> output(device, pairs * r.value);
  FillWithNumbers(device, query.data(), query.size() * 4);
  FillWithNumbers(device, rope.data(), rope.size() * 4);
  GqaParams params;
  params.batch = batch.View();
  params.keys = {0, 64 * key_bytes, key_bytes};
  params.values = {r.heads_kv * 64 * key_bytes, 64 * value_bytes, value_bytes};
  params.query = query.data();
  params.rope_query = r.rope > 0 ? rope.data() : nullptr;
  params.output = output.data();
  params.heads_kv = static_cast<int32_t>(r.heads_kv);
  params.group = static_cast<int32_t>(r.group);
  params.content_width = static_cast<int32_t>(r.content);
  params.rope_width = static_cast<int32_t>(r.rope);
  params.value_width = static_cast<int32_t>(r.value);
  params.scale_log2 = ScaleLog2(r.content + r.rope);
  const GqaVariant variant = ChooseGqaVariant(params, r.rows);
  const int blocks =
      device.info().multiprocessors *
      GqaBlocksPerMultiprocessor(params, variant, device.info().multiprocessor_shared_bytes);
  const TileShape tiles = GqaTiles(params, variant);
  Scheduled scheduled(device, batch, tiles, tiles.unit_rows, r.value, blocks);
  params.schedule = scheduled.params.schedule;
  GqaTime time;
  time.seconds = bench.Seconds([&] {
    LaunchSchedule(device.stream(), scheduled.params);
    LaunchGqa(device.stream(), variant, DType::kBF16, params, blocks);
  });
  time.flop = 2.0 * static_cast<double>(batch.visible() * r.heads_kv * r.group) *
              static_cast<double>(r.content + r.rope + r.value);
  time.bytes = static_cast<double>(batch.loaded() * r.heads_kv * (key_bytes + value_bytes));
  return time;
}

std::string NameOf(const GqaRow& r) {
  return std::string(r.name) + ", " + Count(r.sessions) + " x " + Count(r.rows) + " rows, " +
         Count(r.keys) + " keys" + (r.window > 0 ? ", window " + Count(r.window) : "");
}

// Bound by memory: share of the copy.
void BenchDecode(Bench& bench, const GqaRow& r, double target_share) {
  const GqaTime time = TimeGqa(bench, r);
  const double rate = time.bytes / time.seconds;
  const double share = rate / bench.ceilings().copy_bytes_per_second;
  if (target_share > 0) {
    char target[64];
    std::snprintf(target, sizeof target, ">= %.0f %% of copy", 100 * target_share);
    bench.Row(NameOf(r), time.seconds, rate / 1e12, "TB/s", share, target, share >= target_share);
  } else {
    bench.Row(NameOf(r), time.seconds, rate / 1e12, "TB/s", share);
  }
}

// Bound by products; returns FLOP a second of what is visible.
double BenchPrefill(Bench& bench, const GqaRow& r, double causal) {
  const GqaTime time = TimeGqa(bench, r);
  const double rate = time.flop / time.seconds;
  const double share = rate / bench.ceilings().bf16_flop_per_second;
  if (causal > 0) {
    bench.Row(NameOf(r), time.seconds, rate / 1e12, "TFLOP/s", share, ">= 85 % of causal's",
              rate >= 0.85 * causal);
  } else {
    bench.Row(NameOf(r), time.seconds, rate / 1e12, "TFLOP/s", share);
  }
  return rate;
}

void BenchAppend(Bench& bench) {
  Device& device = bench.device();
  const LocalShape shape{128, 8, 128};
  const int64_t rows = 4096, width = shape.heads_kv * shape.d_head;
  const int64_t page_bytes = kernels::PageBytes(shape, DType::kBF16);
  std::vector<int64_t> page;
  std::vector<int32_t> slot;
  for (int64_t r = 0; r < rows; ++r) {
    page.push_back(r / 64 * page_bytes);
    slot.push_back(static_cast<int32_t>(r % 64));
  }
  const Buffer<float> key(device, rows * width), value(device, rows * width);
  FillWithNumbers(device, key.data(), key.size() * 4);
  FillWithNumbers(device, value.data(), value.size() * 4);
  const Buffer<uint8_t> pool(device, rows / 64 * page_bytes), not_finite(device, rows);
  const Buffer<int64_t> pages(device, page);
  const Buffer<int32_t> slots(device, slot);
  const double seconds = bench.Seconds([&] {
    LaunchAppendLocal(
        device.stream(), device.info().multiprocessors * 16,
        {shape,
         {pool.data(), DType::kBF16, pages.data(), slots.data(), not_finite.data(), rows},
         key.data(),
         value.data()});
  });
  const double rate = static_cast<double>(rows * width) * 2 * (4 + 2) / seconds;
  bench.Row("append local bf16, 4096 rows of 8 x 128", seconds, rate / 1e12, "TB/s",
            rate / bench.ceilings().copy_bytes_per_second);
}

void Run(Bench& bench) {
  bench.MeasureCeilings();
  const GlobalShape large{128, 8, 128, 64, 512}, deepseek{128, 1, 128, 64, 512};
  const DType bf16 = DType::kBF16, fp8 = DType::kFp8E4M3;
  const double flash_mla = 3000.0 / 3350.0;  // FlashMLA's share of an H800's bandwidth
  const LatentRow latents[] = {
      {"global decode", large, bf16, 1, 1, 4096, 0, 0},
      {"global decode", large, bf16, 1, 1, 32768, 0.5, 0},
      {"global decode", large, bf16, 16, 1, 4096, 0.5, 0},
      {"global decode", large, bf16, 64, 1, 8192, 0.5, 0},
      {"global decode", large, bf16, 16, 1, 32768, 0.5, 0},
      {"global decode", large, bf16, 64, 2, 8192, 0, 0},
      {"global decode", large, fp8, 64, 1, 8192, 0, 0},
      {"DeepSeek decode", deepseek, bf16, 64, 1, 8192, 0, flash_mla},
      {"DeepSeek decode", deepseek, fp8, 64, 1, 8192, 0, 0},
  };
  const char* local = "local decode 8 x 16 heads of 128";
  const GqaRow decodes[] = {
      {local, 8, 16, 128, 0, 128, 1, 1, 16384, 4096},
      {local, 8, 16, 128, 0, 128, 16, 1, 16384, 4096},
      {local, 8, 16, 128, 0, 128, 64, 1, 16384, 4096},
      {"decode 8 x 8 heads of 64", 8, 8, 64, 0, 64, 64, 1, 4096, 0},
  };
  for (const LatentRow& row : latents) {
    if (bench.HasTime(std::string(row.name) + " of " + Count(row.keys) + " keys")) {
      BenchLatent(bench, row);
    }
  }
  for (const GqaRow& row : decodes) {
    if (bench.HasTime(NameOf(row))) {
      BenchDecode(bench, row, row.sessions >= 16 && row.window > 0 ? 0.75 : 0);
    }
  }
  const GqaRow causal{"prefill 8 x 16 heads of 128", 8, 16, 128, 0, 128, 1, 8192, 8192, 0};
  GqaRow window = causal;
  window.window = 4096;
  const GqaRow expanded{
      "global prefill 8 x 16 heads of 192/128", 8, 16, 128, 64, 128, 1, 8192, 8192, 0};
  if (bench.HasTime("prefill")) {
    const double rate = BenchPrefill(bench, causal, 0);
    BenchPrefill(bench, window, rate);
    BenchPrefill(bench, expanded, 0);
  }
  if (bench.HasTime("append")) {
    BenchAppend(bench);
  }
}

}  // namespace
}  // namespace attnd::gpu

int main(int argc, char** argv) {
  std::string out;
  double seconds = 1e9;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string argument = argv[i];
    if (argument == "--out") {
      out = argv[i + 1];
    } else if (argument == "--seconds") {
      seconds = std::strtod(argv[i + 1], nullptr);
    }
  }
  attnd::gpu::Device device;
  attnd::gpu::Bench bench(device, out, seconds);
  attnd::gpu::Run(bench);
  return 0;
}
