#include "tests/kernels/cuda/latent_case.h"

#include <algorithm>
#include <cmath>

#include "kernels/cache_layout.h"
#include "kernels/check.h"

namespace attnd::kernels::cuda {
namespace {

size_t Size(int64_t n) { return static_cast<size_t>(n); }

GlobalShape GlobalOf(const LatentShape& shape) {
  return {shape.heads(), shape.heads_kv, 128, shape.rope, shape.latent};
}

}  // namespace

int64_t SharedLimit(int architecture) {
  return int64_t{architecture == 80 ? 163 : architecture == 89 ? 99 : 227} << 10;
}

LatentCase::LatentCase(const LatentShape& shape, DType dtype, std::vector<Intervals> sequences,
                       uint64_t seed)
    : CudaCase(dtype, std::move(sequences), seed, PageBytes(GlobalOf(shape), dtype)),
      shape_(shape),
      global_(GlobalOf(shape)) {
  scale = 1 / std::sqrt(128.0 + shape.rope);
  query_ = random_.Floats(rows() * shape.heads() * shape.latent);
  rope_query_ = random_.Floats(rows() * shape.heads() * shape.rope);
  for (size_t s = 0; s < intervals_.size(); ++s) {
    const int64_t tokens = end_[s] - first_[s];
    latent_.push_back(random_.Floats(tokens * shape.latent));
    rope_key_.push_back(random_.Floats(tokens * shape.heads_kv * shape.rope));
  }
  MakePool(page_bytes_);
}

float* LatentCase::Latent(int64_t sequence, int64_t token) {
  return latent_[Size(sequence)].data() + (token - first_[Size(sequence)]) * shape_.latent;
}

float* LatentCase::RopeKey(int64_t sequence, int64_t token) {
  const int64_t width = int64_t{shape_.heads_kv} * shape_.rope;
  return rope_key_[Size(sequence)].data() + (token - first_[Size(sequence)]) * width;
}

void LatentCase::Store() {
  query_ = Rounded(element(), query_);
  rope_query_ = Rounded(element(), rope_query_);
  const PageRows latents = LatentRows(global_, dtype_);
  const PageRows rope = RopeRows(global_, dtype_);
  ForTokens([&](int64_t sequence, int64_t token, int64_t page, int32_t slot) {
    Check(StoreRow(latents, slot, Latent(sequence, token), shape_.latent, pool_.data() + page) &&
              StoreRow(rope, slot, RopeKey(sequence, token), shape_.heads_kv * shape_.rope,
                       pool_.data() + page),
          "the rows of a case are finite");
  });
  for (size_t s = 0; s < latent_.size(); ++s) {
    stored_.push_back(RoundedRows(dtype_, latent_[s], shape_.latent));
    rope_key_[s] = Rounded(rope.dtype, rope_key_[s]);
  }
  MakeTable();
}

LatentParams LatentCase::Params(float* output) const {
  const PageRows latents = LatentRows(global_, dtype_);
  const PageRows rope = RopeRows(global_, dtype_);
  LatentParams params;
  params.batch = Rows();
  params.latent_offset = latents.offset;
  params.latent_stride = latents.stride;
  params.scales = latents.scales;
  params.rope_offset = rope.offset;
  params.rope_stride = rope.stride;
  params.query = query_.data();
  params.rope_query = shape_.rope > 0 ? rope_query_.data() : nullptr;
  params.output = output;
  params.heads_kv = shape_.heads_kv;
  params.group = shape_.group;
  params.d_latent = shape_.latent;
  params.d_rope = shape_.rope;
  params.scale_log2 = ScaleLog2(scale);
  return params;
}

std::vector<float> LatentCase::Run(Stream& stream, const LatentRun& run) const {
  std::vector<float> output(Size(rows() * shape_.heads() * shape_.latent), kNoNumber);
  LatentParams params = Params(output.data());
  stream.set_architecture(run.architecture);
  const LatentPlan plan = PlanLatent(dtype_, params, SharedLimit(run.architecture));
  Check(plan.ok(), "the shape of the case has a kernel");
  const std::vector<SequenceView> views = Views(run.only);
  Splits splits(stream, views, LatentTiles(plan, params), plan.tile_rows() * (shape_.latent + 2),
                {run.split_keys, run.max_work, run.blocks});
  Check(splits.work() <= run.max_work || splits.split_keys() == kOneSplit,
        "a case has as many partials as it needs");
  params.batch.sequences = views.data();
  params.batch.num_sequences = static_cast<int32_t>(views.size());
  params.schedule = splits.schedule();
  LaunchLatent(stream, dtype_, plan, params, run.blocks);
  Check(splits.AllArrived(), "a launch leaves the counters at zero");
  return output;
}

std::vector<double> LatentCase::Want(bool stored) const {
  std::vector<double> want;
  const int64_t width = int64_t{shape_.latent} + shape_.rope;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const float* latents = (stored ? stored_ : latent_)[s].data();
    const int64_t tokens = end_[s] - first_[s];
    std::vector<std::vector<double>> keys(Size(shape_.heads_kv), std::vector<double>());
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t kv = 0; kv < shape_.heads_kv; ++kv) {
        const float* rope = rope_key_[s].data() + (t * shape_.heads_kv + kv) * shape_.rope;
        std::vector<double>& key = keys[Size(kv)];
        key.insert(key.end(), latents + t * shape_.latent, latents + (t + 1) * shape_.latent);
        key.insert(key.end(), rope, rope + shape_.rope);
      }
    }
    for (int64_t row = sequences_[s].row_begin; row < sequences_[s].row_begin + sequences_[s].rows;
         ++row) {
      for (int64_t h = 0; h < shape_.heads(); ++h) {
        const int64_t packed = row * shape_.heads() + h;
        const float* content = query_.data() + packed * shape_.latent;
        const float* rope = rope_query_.data() + packed * shape_.rope;
        std::vector<double> query(content, content + shape_.latent);
        query.insert(query.end(), rope, rope + shape_.rope);
        ReferenceHead head;
        head.key_width = width;
        head.value_width = shape_.latent;
        head.scale = scale;
        head.query = query.data();
        head.key = head.value = keys[Size(h / shape_.group)].data();
        head.key_stride = head.value_stride = width;
        const std::vector<double> output =
            ReferenceAttend(head, 0, {lo_[Size(row)] - first_[s], hi_[Size(row)] - first_[s]});
        want.insert(want.end(), output.begin(), output.end());
      }
    }
  }
  return want;
}

}  // namespace attnd::kernels::cuda
