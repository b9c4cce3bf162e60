// The plain attention kernel, for every shape and dtype, against float64.
#include <cmath>
#include <string>

#include "kernels/cache_layout.h"
#include "kernels/cuda/plain/plain_attention.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/values.h"

namespace attnd::gpu {
namespace {

using namespace kernels::cuda;
using kernels::GlobalShape;
using kernels::LocalShape;
using kernels::PageRows;

// All arithmetic is float32.
constexpr double kTolerance = 3e-6;

RowPlace PlaceOf(const PageRows& rows, int64_t head_step) {
  return {rows.dtype, rows.offset, head_step, rows.stride, rows.scales};
}

struct Queries {
  Queries(Device& device, const RaggedBatch& batch, int64_t heads, int64_t content, int64_t rope,
          Random& random)
      : query(device, random.Floats(batch.rows() * heads * content)),
        rope_query(device, random.Floats(batch.rows() * heads * rope)) {}
  Buffer<float> query, rope_query;
};

std::vector<float> Run(Device& device, const RaggedBatch& batch, const Queries& queries,
                       PlainParams params, int64_t only) {
  const int64_t pairs = batch.rows() * params.heads_kv * params.group;
  Buffer<float> output(device, pairs * params.value_width);
  params.batch = batch.View(only);
  params.rows = static_cast<int32_t>(batch.rows());
  params.query = queries.query.data();
  params.rope_query = queries.rope_query.data();
  params.output = output.data();
  LaunchPlainAttention(device.stream(), device.info().multiprocessors * 4, params);
  device.Synchronize("the plain attention kernel");
  return output.Get();
}

void Compare(Device& device, Report& report, const std::string& name, const RaggedBatch& batch,
             const Queries& queries, const PlainParams& params, const std::vector<double>& want) {
  const auto run = [&](int64_t only) { return Run(device, batch, queries, params, only); };
  report.Near("plain", name, run(-1), want, kTolerance);
  report.Same("plain", name + " alone or in a batch", run(-1), EachAlone(batch, run));
}

void CheckLocal(Device& device, Report& report, const LocalShape& shape, DType dtype,
                const std::vector<Intervals>& sequences, Random& random) {
  const DType stored = kernels::KeyRows(shape, dtype, 0).dtype;
  RaggedBatch batch(device, sequences, kernels::PageBytes(shape, dtype), random);
  const Queries queries(device, batch, shape.heads_q, shape.d_head, 0, random);
  std::vector<std::vector<float>> keys, values;
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    const int64_t n = batch.tokens(s) * shape.heads_kv * shape.d_head;
    keys.push_back(Stored(stored, random.Floats(n), 1));
    values.push_back(Stored(stored, random.Floats(n), 1));
    for (int64_t t = 0; t < batch.tokens(s); ++t) {
      const int64_t token = batch.first_token(s) + t;
      for (int64_t h = 0; h < shape.heads_kv && batch.SeesAny(s, token); ++h) {
        const int64_t at = (t * shape.heads_kv + h) * shape.d_head;
        uint8_t* page = batch.Page(s, token);
        kernels::StoreRow(kernels::KeyRows(shape, dtype, h), token % 64, keys.back().data() + at,
                          shape.d_head, page);
        kernels::StoreRow(kernels::ValueRows(shape, dtype, h), token % 64,
                          values.back().data() + at, shape.d_head, page);
      }
    }
  }
  batch.Upload();
  const double scale = 1 / std::sqrt(static_cast<double>(shape.d_head));
  PlainParams params;
  const PageRows rows = kernels::KeyRows(shape, dtype, 0);
  params.content = PlaceOf(rows, kernels::kPageTokens * rows.stride);
  params.value = PlaceOf(kernels::ValueRows(shape, dtype, 0), kernels::kPageTokens * rows.stride);
  params.heads_kv = static_cast<int32_t>(shape.heads_kv);
  params.group = static_cast<int32_t>(shape.group());
  params.content_width = params.value_width = static_cast<int32_t>(shape.d_head);
  params.scale_log2 = static_cast<float>(scale * std::log2(std::exp(1.0)));
  const WantedShape wanted{shape.heads_kv, shape.group(), shape.d_head, 0, shape.d_head, scale};
  const auto want = Wanted(batch, wanted, queries.query.Get(), {}, [&](int64_t s, int64_t head) {
    HeadValues of;
    for (int64_t t = 0; t < batch.tokens(s); ++t) {
      const int64_t at = (t * shape.heads_kv + head) * shape.d_head;
      const float* key = keys[static_cast<size_t>(s)].data() + at;
      const float* value = values[static_cast<size_t>(s)].data() + at;
      of.key.insert(of.key.end(), key, key + shape.d_head);
      of.value.insert(of.value.end(), value, value + shape.d_head);
    }
    return of;
  });
  Compare(device, report, std::string(DTypeName(dtype)) + " local " + std::to_string(shape.d_head),
          batch, queries, params, want);
}

void CheckGlobal(Device& device, Report& report, const GlobalShape& shape, DType dtype,
                 const std::vector<Intervals>& sequences, Random& random) {
  RaggedBatch batch(device, sequences, kernels::PageBytes(shape, dtype), random);
  const Queries queries(device, batch, shape.heads_q, shape.d_latent, shape.d_rope, random);
  const PageRows latent_rows = kernels::LatentRows(shape, dtype);
  const PageRows rope_rows = kernels::RopeRows(shape, dtype);
  const int64_t rope_width = shape.heads_kv * shape.d_rope;
  std::vector<std::vector<float>> latents, ropes;
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    latents.push_back(random.Floats(batch.tokens(s) * shape.d_latent));
    ropes.push_back(Stored(rope_rows.dtype, random.Floats(batch.tokens(s) * rope_width), 1));
    for (int64_t t = 0; t < batch.tokens(s); ++t) {
      const int64_t token = batch.first_token(s) + t;
      if (batch.SeesAny(s, token)) {
        uint8_t* page = batch.Page(s, token);
        kernels::StoreRow(latent_rows, token % 64, latents.back().data() + t * shape.d_latent,
                          shape.d_latent, page);
        kernels::StoreRow(rope_rows, token % 64, ropes.back().data() + t * rope_width, rope_width,
                          page);
      }
    }
    latents.back() = Stored(dtype, latents.back(), shape.d_latent);
  }
  batch.Upload();
  const double scale = 1 / std::sqrt(static_cast<double>(shape.d_head + shape.d_rope));
  PlainParams params;
  params.content = params.value = PlaceOf(latent_rows, 0);
  params.rope = PlaceOf(rope_rows, shape.d_rope * DTypeSize(rope_rows.dtype));
  params.heads_kv = static_cast<int32_t>(shape.heads_kv);
  params.group = static_cast<int32_t>(shape.group());
  params.content_width = params.value_width = static_cast<int32_t>(shape.d_latent);
  params.rope_width = static_cast<int32_t>(shape.d_rope);
  params.scale_log2 = static_cast<float>(scale * std::log2(std::exp(1.0)));
  const WantedShape wanted{shape.heads_kv, shape.group(),  shape.d_latent,
                           shape.d_rope,   shape.d_latent, scale};
  const auto want = Wanted(
      batch, wanted, queries.query.Get(), queries.rope_query.Get(), [&](int64_t s, int64_t head) {
        HeadValues of;
        for (int64_t t = 0; t < batch.tokens(s); ++t) {
          const size_t at = static_cast<size_t>(s);
          const float* latent = latents[at].data() + t * shape.d_latent;
          const float* rope = ropes[at].data() + t * rope_width + head * shape.d_rope;
          of.key.insert(of.key.end(), latent, latent + shape.d_latent);
          of.key.insert(of.key.end(), rope, rope + shape.d_rope);
          of.value.insert(of.value.end(), latent, latent + shape.d_latent);
        }
        return of;
      });
  Compare(device, report,
          std::string(DTypeName(dtype)) + " global " + std::to_string(shape.d_latent) + "+" +
              std::to_string(shape.d_rope),
          batch, queries, params, want);
}

}  // namespace

void CheckPlain(Device& device, Report& report, Size size, uint64_t seed) {
  Random random(seed);
  const bool full = size == Size::kFull;
  const auto sequences = [&] {
    return RaggedSequences(random, full ? 6 : 2, full ? 12 : 3, full ? 700 : 100);
  };
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kFp8E4M3}) {
    CheckLocal(device, report, {6, 2, 13}, dtype, sequences(), random);
    CheckGlobal(device, report, {6, 2, 24, 6, 19}, dtype, sequences(), random);
    if (full) {
      CheckLocal(device, report, {16, 8, 256}, dtype, sequences(), random);
      CheckGlobal(device, report, {10, 5, 128, 64, 512}, dtype, sequences(), random);
    }
  }
}

}  // namespace attnd::gpu
