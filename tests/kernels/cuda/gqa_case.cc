#include "tests/kernels/cuda/gqa_case.h"

#include <algorithm>
#include <cmath>

#include "kernels/check.h"
#include "kernels/convert.h"

namespace attnd::kernels::cuda {
namespace {

size_t Size(int64_t n) { return static_cast<size_t>(n); }

std::vector<double> Doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

GqaCase::GqaCase(const GqaShape& shape, DType dtype, std::vector<Intervals> sequences,
                 uint64_t seed)
    : CudaCase(dtype, std::move(sequences), seed,
               int64_t{64} * shape.heads_kv * (shape.key() + shape.value) * 2),
      shape_(shape) {
  scale = 1 / std::sqrt(static_cast<double>(shape.key()));
  query_ = random_.Floats(rows() * shape.heads() * shape.content);
  rope_query_ = random_.Floats(rows() * shape.heads() * shape.rope);
  for (size_t s = 0; s < intervals_.size(); ++s) {
    const int64_t tokens = (end_[s] - first_[s]) * shape.heads_kv;
    key_.push_back(random_.Floats(tokens * shape.key()));
    value_.push_back(random_.Floats(tokens * shape.value));
  }
  MakePool(page_bytes_);
}

float* GqaCase::Key(int64_t sequence, int64_t token, int64_t head) {
  const int64_t row = (token - first_[Size(sequence)]) * shape_.heads_kv + head;
  return key_[Size(sequence)].data() + row * shape_.key();
}

float* GqaCase::Value(int64_t sequence, int64_t token, int64_t head) {
  const int64_t row = (token - first_[Size(sequence)]) * shape_.heads_kv + head;
  return value_[Size(sequence)].data() + row * shape_.value;
}

void GqaCase::Store() {
  query_ = Rounded(dtype_, query_);
  rope_query_ = Rounded(dtype_, rope_query_);
  for (size_t s = 0; s < key_.size(); ++s) {
    key_[s] = Rounded(dtype_, key_[s]);
    value_[s] = Rounded(dtype_, value_[s]);
  }
  const int64_t key_bytes = int64_t{2} * shape_.key();
  const int64_t value_bytes = int64_t{2} * shape_.value;
  ForTokens([&](int64_t sequence, int64_t token, int64_t page, int32_t slot) {
    for (int32_t h = 0; h < shape_.heads_kv; ++h) {
      uint8_t* keys = pool_.data() + page;
      uint8_t* values = keys + 64 * shape_.heads_kv * key_bytes;
      kernels::FromFloat(dtype_, Key(sequence, token, h), shape_.key(),
                         keys + (h * 64 + slot) * key_bytes);
      kernels::FromFloat(dtype_, Value(sequence, token, h), shape_.value,
                         values + (h * 64 + slot) * value_bytes);
    }
  });
  MakeTable();
}

GqaParams GqaCase::Params(float* output) const {
  const int64_t key_bytes = int64_t{2} * shape_.key();
  const int64_t value_bytes = int64_t{2} * shape_.value;
  GqaParams params;
  params.batch = Rows();
  params.keys = {0, 64 * key_bytes, key_bytes};
  params.values = {64 * shape_.heads_kv * key_bytes, 64 * value_bytes, value_bytes};
  params.query = query_.data();
  params.rope_query = shape_.rope > 0 ? rope_query_.data() : nullptr;
  params.output = output;
  params.heads_kv = shape_.heads_kv;
  params.group = shape_.group;
  params.content_width = shape_.content;
  params.rope_width = shape_.rope;
  params.value_width = shape_.value;
  params.scale_log2 = ScaleLog2(scale);
  return params;
}

std::vector<float> GqaCase::Run(Stream& stream, const GqaRun& run) const {
  std::vector<float> output(Size(rows() * shape_.heads() * shape_.value), kNoNumber);
  std::vector<float> carry(Size(rows() * shape_.heads() * (shape_.value + 2)), kNoNumber);
  GqaParams params = Params(output.data());
  Check(GqaSupports(params, dtype_), "the shape of the case is supported");
  params.carry = run.carry.empty() ? nullptr : carry.data();
  for (const GqaVariant variant : {GqaVariant::kDecode, GqaVariant::kPrefill}) {
    std::vector<SequenceView> views = Views(run.only);
    std::erase_if(views, [&](const SequenceView& view) {
      const GqaVariant own =
          run.variant != nullptr ? *run.variant : ChooseGqaVariant(params, view.rows);
      return own != variant;
    });
    if (!views.empty()) {
      RunVariant(stream, run, variant, params, views);
    }
  }
  return output;
}

void GqaCase::RunVariant(Stream& stream, const GqaRun& run, GqaVariant variant, GqaParams params,
                         const std::vector<SequenceView>& views) const {
  const TileShape tiles = GqaTiles(params, variant);
  Splits splits(stream, views, tiles, int64_t{tiles.unit_rows} * (shape_.value + 2),
                {run.split_keys, run.max_work, run.grid});
  params.batch.sequences = views.data();
  params.batch.num_sequences = static_cast<int32_t>(views.size());
  params.schedule = splits.schedule();
  if (run.carry.empty()) {
    LaunchGqa(stream, variant, dtype_, params, run.grid);
  }
  int64_t begin = 0;
  for (size_t i = 0; i < run.carry.size(); ++i) {
    params.carry_begin = begin;
    params.carry_end = run.carry[i];
    params.carry_first = i == 0;
    params.carry_last = i + 1 == run.carry.size();
    LaunchGqa(stream, variant, dtype_, params, run.grid);
    begin = run.carry[i];
  }
  Check(splits.AllArrived(), "a launch leaves the counters at zero");
}

std::vector<double> GqaCase::Want() const {
  std::vector<double> want;
  for (int64_t row = 0; row < rows(); ++row) {
    const size_t s = Size(SequenceOf(row));
    const std::vector<double> keys = Doubles(key_[s]);
    const std::vector<double> values = Doubles(value_[s]);
    for (int64_t h = 0; h < shape_.heads(); ++h) {
      const int64_t kv = h / shape_.group;
      const int64_t packed = row * shape_.heads() + h;
      const float* content = query_.data() + packed * shape_.content;
      const float* rope = rope_query_.data() + packed * shape_.rope;
      std::vector<double> query(content, content + shape_.content);
      query.insert(query.end(), rope, rope + shape_.rope);
      ReferenceHead head;
      head.key_width = shape_.key();
      head.value_width = shape_.value;
      head.scale = scale;
      head.query = query.data();
      head.key = keys.data() + kv * shape_.key();
      head.key_stride = int64_t{shape_.heads_kv} * shape_.key();
      head.value = values.data() + kv * shape_.value;
      head.value_stride = int64_t{shape_.heads_kv} * shape_.value;
      const ReferenceInterval interval = {lo_[Size(row)] - first_[s], hi_[Size(row)] - first_[s]};
      const std::vector<double> output = ReferenceAttend(head, 0, interval);
      want.insert(want.end(), output.begin(), output.end());
    }
  }
  return want;
}

}  // namespace attnd::kernels::cuda
