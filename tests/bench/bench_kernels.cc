// The CPU backend's operations alone, and what OpenBLAS does with the same work. Flags: harness.h.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cache_layout.h"
#include "kernels/convert.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/worker_pool.h"
#include "tests/bench/harness.h"
#include "tests/bench/kernel_cases.h"
#ifdef ATTND_OPENBLAS
#include "tests/bench/blas_peers.h"
#endif

namespace attnd::bench {
namespace {

using kernels::Backend;
using kernels::GlobalShape;
using kernels::LocalShape;

std::unique_ptr<Backend> MakeBackend(const Setting& setting) {
  auto backend = kernels::MakeCpuBackend({setting.threads, setting.isa});
  if (!backend.ok()) {
    std::fprintf(stderr, "bench_kernels: %s\n", backend.status().ToString().c_str());
    std::exit(2);
  }
  return std::move(*backend);
}

void LocalAttention(benchmark::State& state, const Setting& setting, const LocalShape& shape,
                    DType dtype, const std::vector<Span>& spans) {
  const auto backend = MakeBackend(setting);
  const PagedBatch pages(*backend, dtype, FilledPage(shape, dtype), spans);
  (void)backend->Prepare(pages.limits(), &shape, nullptr);
  const int64_t width = shape.heads_q * shape.d_head;
  const std::vector<float> query = Values(pages.rows() * width, 1);
  std::vector<float> output(query.size());
  kernels::LocalAttentionParams params;
  params.shape = shape;
  params.batch = pages.Batch(1 / std::sqrt(static_cast<float>(shape.d_head)));
  params.query = query.data();
  params.output = output.data();
  for (auto _ : state) {
    backend->LocalAttention(params);
  }
  Count(state, 4.0 * static_cast<double>(pages.pairs() * width),
        static_cast<double>(pages.tokens() * kernels::TokenBytes(shape, dtype)));
}

void LatentAttention(benchmark::State& state, const Setting& setting, const GlobalShape& shape,
                     DType dtype, const std::vector<Span>& spans) {
  const auto backend = MakeBackend(setting);
  const PagedBatch pages(*backend, dtype, FilledPage(shape, dtype), spans);
  (void)backend->Prepare(pages.limits(), nullptr, &shape);
  const std::vector<float> query = Values(pages.rows() * shape.heads_q * shape.d_latent, 1);
  const std::vector<float> rope = Values(pages.rows() * shape.heads_q * shape.d_rope, 2);
  std::vector<float> output(query.size());
  kernels::LatentAttentionParams params;
  params.shape = shape;
  params.batch = pages.Batch(0.05f);
  params.query = query.data();
  params.rope_query = rope.data();
  params.output = output.data();
  for (auto _ : state) {
    backend->LatentAttention(params);
  }
  const int64_t per_pair = 2 * (2 * shape.d_latent + shape.d_rope);
  Count(state, static_cast<double>(pages.pairs() * shape.heads_q * per_pair),
        static_cast<double>(pages.tokens() * kernels::TokenBytes(shape, dtype)));
}

std::unique_ptr<kernels::PackedWeight> Pack(Backend& backend, DType dtype, int64_t groups,
                                            int64_t out, int64_t in) {
  const int64_t n = groups * out * in;
  std::vector<uint8_t> stored(static_cast<size_t>(n * DTypeSize(dtype)));
  kernels::FromFloat(dtype, Values(n, 5).data(), n, stored.data());
  kernels::WeightView view;
  view.data = stored.data();
  view.dtype = dtype;
  view.groups = groups;
  view.out = out;
  view.in = in;
  auto packed = backend.Pack(view);
  if (!packed.ok()) {
    std::fprintf(stderr, "bench_kernels: %s\n", packed.status().ToString().c_str());
    std::exit(1);
  }
  return std::move(*packed);
}

void ExpandedAttention(benchmark::State& state, const Setting& setting, const GlobalShape& shape,
                       DType dtype, const std::vector<Span>& spans) {
  const auto backend = MakeBackend(setting);
  const PagedBatch pages(*backend, dtype, FilledPage(shape, dtype), spans);
  (void)backend->Prepare(pages.limits(), nullptr, &shape);
  const DType weights = dtype == DType::kInt8 ? DType::kBF16 : dtype;
  const auto expand_key = Pack(*backend, weights, shape.heads_kv, shape.d_head, shape.d_latent);
  const auto expand_value = Pack(*backend, weights, shape.heads_kv, shape.d_head, shape.d_latent);
  const std::vector<float> query = Values(pages.rows() * shape.heads_q * shape.d_head, 1);
  const std::vector<float> rope = Values(pages.rows() * shape.heads_q * shape.d_rope, 2);
  std::vector<float> output(query.size());
  kernels::ExpandedAttentionParams params;
  params.shape = shape;
  params.batch = pages.Batch(0.05f);
  params.expand_key = expand_key.get();
  params.expand_value = expand_value.get();
  params.query = query.data();
  params.rope_query = rope.data();
  params.output = output.data();
  for (auto _ : state) {
    backend->ExpandedAttention(params);
  }
  const int64_t per_pair = 2 * (2 * shape.d_head + shape.d_rope);
  const int64_t per_token = 4 * shape.d_latent * shape.heads_kv * shape.d_head;
  Count(state,
        static_cast<double>(pages.pairs() * shape.heads_q * per_pair + pages.tokens() * per_token),
        static_cast<double>(pages.tokens() * kernels::TokenBytes(shape, dtype)));
}

// Decode over a shadow: each session's new row is decompressed into it, then all attend.
void ShadowAttention(benchmark::State& state, const Setting& setting, const GlobalShape& shape,
                     DType dtype, const std::vector<Span>& spans) {
  const auto backend = MakeBackend(setting);
  const kernels::ShadowShape of_shadow = kernels::ShadowOf(shape);
  const PagedBatch latents(*backend, dtype, FilledPage(shape, dtype), spans);
  const std::vector<float> values = Values(of_shadow.row_elements() * kernels::kPageTokens, 3);
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  const PagedBatch pages(*backend, DType::kF32, {bytes, bytes + values.size() * sizeof(float)},
                         spans);
  (void)backend->Prepare(pages.limits(), nullptr, &shape);
  const DType weights = dtype == DType::kInt8 ? DType::kBF16 : dtype;
  const auto expand_key = Pack(*backend, weights, shape.heads_kv, shape.d_head, shape.d_latent);
  const auto expand_value = Pack(*backend, weights, shape.heads_kv, shape.d_head, shape.d_latent);
  const std::vector<float> query = Values(pages.rows() * shape.heads_q * shape.d_head, 1);
  const std::vector<float> rope = Values(pages.rows() * shape.heads_q * shape.d_rope, 2);
  std::vector<float> output(query.size());
  kernels::ShadowAttentionParams params;
  params.shape = of_shadow;
  params.batch = pages.Batch(0.05f);
  params.query = query.data();
  params.rope_query = rope.data();
  params.output = output.data();
  std::vector<int64_t> page, shadow_page;
  std::vector<int32_t> slot;
  for (size_t i = 0; i < spans.size(); ++i) {
    const auto at = static_cast<size_t>(spans[i].history / kernels::kPageTokens);
    page.push_back(latents.Batch(0).sequences[i].pages[at]);
    shadow_page.push_back(params.batch.sequences[i].pages[at]);
    slot.push_back(static_cast<int32_t>(spans[i].history % kernels::kPageTokens));
  }
  kernels::FillShadowParams fill;
  fill.shape = shape;
  fill.pool = latents.Batch(0).pool;
  fill.dtype = dtype;
  fill.shadow = const_cast<uint8_t*>(params.batch.pool);
  fill.page = page.data();
  fill.shadow_page = shadow_page.data();
  fill.slot = slot.data();
  fill.rows = static_cast<int64_t>(page.size());
  fill.expand_key = expand_key.get();
  fill.expand_value = expand_value.get();
  for (auto _ : state) {
    backend->FillShadow(fill);
    backend->ShadowAttention(params);
  }
  const int64_t per_pair = 2 * (2 * shape.d_head + shape.d_rope);
  Count(state, static_cast<double>(pages.pairs() * shape.heads_q * per_pair),
        static_cast<double>(pages.tokens() * of_shadow.row_elements() * DTypeSize(DType::kF32)));
}

void Projection(benchmark::State& state, const Setting& setting, DType dtype, int64_t rows,
                int64_t width) {
  const auto backend = MakeBackend(setting);
  (void)backend->Prepare({rows, 1, 1}, nullptr, nullptr);
  const auto weight = Pack(*backend, dtype, 1, width, width);
  const std::vector<float> x = Values(rows * width, 1);
  std::vector<float> y(x.size());
  kernels::ProjectParams params;
  params.weight = weight.get();
  params.rows = rows;
  params.x = x.data();
  params.x_row = width;
  params.y = y.data();
  params.y_row = width;
  for (auto _ : state) {
    backend->Project(params);
  }
  Count(state, 2.0 * static_cast<double>(rows * width * width),
        static_cast<double>(width * width * DTypeSize(dtype)));
}

constexpr std::pair<const char*, DType> kDTypes[] = {
    {"f32", DType::kF32}, {"bf16", DType::kBF16}, {"f16", DType::kF16}, {"int8", DType::kInt8}};
const LocalShape kGqa{128, 8, 128};
const LocalShape kMha{8, 8, 128};
const GlobalShape kApex{128, 8, 128, 64, 512};
const GlobalShape kDeepSeek{128, 1, 128, 64, 512};

// One session of 32 K tokens beside fifteen of 500.
std::vector<Span> Ragged(int64_t window) {
  std::vector<Span> spans = {{32767, 1, window}};
  spans.resize(16, {499, 1, window});
  return spans;
}

void AddLocal(const Setting& s, const std::string& dtype_name, DType dtype) {
  const auto add = [&](const std::string& name, const LocalShape& shape, std::vector<Span> spans) {
    Add(s, "local_" + name + "/" + dtype_name,
        [=](benchmark::State& state) { LocalAttention(state, s, shape, dtype, spans); });
  };
  add("decode/4096", kGqa, {{4095, 1, 4096}});
  add("decode/8192", kGqa, {{8191, 1, 8192}});
  add("decode_mha/4096", kMha, {{4095, 1, 4096}});
  add("decode_far/4096", kGqa, {{16 * 4096 - 1, 1, 4096}});
  add("decode_ragged", kGqa, Ragged(0));
  add("prefill/512", kGqa, {{0, 512, 0}});
  add("prefill/512x4096", kGqa, {{4096 - 512, 512, 0}});
  add("prefill/2048", kGqa, {{0, 2048, 0}});
  add("prefill_window/2048w512", kGqa, {{0, 2048, 512}});
}

void AddGlobal(const Setting& s, const std::string& dtype_name, DType dtype) {
  const auto add = [&](const std::string& name, const GlobalShape& shape, std::vector<Span> spans) {
    Add(s, "latent_" + name + "/" + dtype_name,
        [=](benchmark::State& state) { LatentAttention(state, s, shape, dtype, spans); });
  };
  add("decode/4096", kApex, {{4095, 1, 0}});
  add("decode/32768", kApex, {{32767, 1, 0}});
  add("decode_shared_rope/4096", kDeepSeek, {{4095, 1, 0}});
  add("decode_ragged", kApex, Ragged(0));
  for (const int64_t rows : {4, 8, 12, 16, 32}) {
    add("rows/" + std::to_string(rows) + "x4096", kApex, {{4096 - rows, rows, 0}});
  }
  const auto shadow = [&](const std::string& name, std::vector<Span> spans) {
    Add(s, "shadow_" + name + "/" + dtype_name,
        [=](benchmark::State& state) { ShadowAttention(state, s, kApex, dtype, spans); });
  };
  shadow("decode/4096", {{4095, 1, 0}});
  shadow("decode/32768", {{32767, 1, 0}});
  shadow("decode_ragged", Ragged(0));
  const auto expanded = [&](const std::string& name, std::vector<Span> spans) {
    Add(s, "expanded_" + name + "/" + dtype_name,
        [=](benchmark::State& state) { ExpandedAttention(state, s, kApex, dtype, spans); });
  };
  for (const int64_t rows : {1, 4, 8, 12, 16, 32}) {
    expanded("rows/" + std::to_string(rows) + "x4096", {{4096 - rows, rows, 0}});
  }
  expanded("prefill/512x1024", {{512, 512, 0}});
  expanded("prefill/2048", {{0, 2048, 0}});
}

// What it costs to have two threads do nothing: right after the last call, and once the worker
// sleeps.
void HandOver(benchmark::State& state, bool asleep) {
  kernels::WorkerPool pool(2);
  for (auto _ : state) {
    if (asleep) {
      state.PauseTiming();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      state.ResumeTiming();
    }
    std::atomic<int> arrived{0};
    pool.ParallelFor(2, [&](int64_t, int) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) {  // both threads must come
      }
    });
  }
}

void AddAll(const Setting& s) {
  for (const bool asleep : {false, true}) {
    benchmark::RegisterBenchmark(asleep ? "pool_handover/asleep" : "pool_handover/spinning",
                                 [=](benchmark::State& state) { HandOver(state, asleep); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  for (const auto& [name, dtype] : kDTypes) {
    AddLocal(s, name, dtype);
    AddGlobal(s, name, dtype);
    if (dtype == DType::kInt8) {
      continue;  // of caches alone
    }
    for (const int64_t rows : {1, 2, 4, 6, 8, 12, 16, 32, 64, 128, 512}) {
      Add(s, "projection/" + std::to_string(rows) + "/" + name,
          [=, d = dtype](benchmark::State& st) { Projection(st, s, d, rows, 4096); });
    }
  }
#ifdef ATTND_OPENBLAS
  AddBlasPeers(s);
#endif
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  return attnd::bench::RunBenchmarks(argc, argv, attnd::bench::AddAll);
}
