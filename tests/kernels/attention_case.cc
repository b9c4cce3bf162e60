#include "tests/kernels/attention_case.h"

#include <algorithm>
#include <cmath>

#include "kernels/cache_layout.h"
#include "kernels/check.h"

namespace attnd::kernels {
namespace {

constexpr int64_t kNowhere = int64_t{2000000000} << 20;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

std::vector<double> Doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

Intervals RowsOf(int64_t begin, int64_t end, int64_t prefix, int64_t window) {
  Intervals rows;
  for (int64_t row = begin; row < end; ++row) {
    rows.push_back(ReferenceVisible(row, prefix, window));
  }
  return rows;
}

std::unique_ptr<Backend> MakeBackend(const std::string& isa, int threads) {
  auto backend = MakeCpuBackend({threads, isa});
  Check(backend.ok(), "the backend of a test can be made");
  return std::move(*backend);
}

AttentionCase::AttentionCase(DType dtype, std::vector<Intervals> sequences, uint64_t seed)
    : dtype_(dtype), random_(seed), intervals_(std::move(sequences)) {
  for (const Intervals& rows : intervals_) {
    int64_t first = INT64_MAX;
    int64_t end = 0;
    for (const ReferenceInterval& row : rows) {
      lo_.push_back(row.lo);
      hi_.push_back(row.hi);
      if (row.lo < row.hi) {
        first = std::min(first, row.lo);
        end = std::max(end, row.hi);
      }
    }
    first_.push_back(std::min(first, end));
    end_.push_back(end);
  }
}

BatchLimits AttentionCase::Limits() const {
  int64_t keys = 0;
  for (size_t row = 0; row < lo_.size(); ++row) {
    keys = std::max(keys, hi_[row] - lo_[row]);
  }
  return {rows(), static_cast<int64_t>(intervals_.size()), keys};
}

bool AttentionCase::Sees(int64_t sequence, int64_t token) const {
  const Intervals& rows = intervals_[Size(sequence)];
  return std::any_of(rows.begin(), rows.end(), [token](const ReferenceInterval& row) {
    return row.lo <= token && token < row.hi;
  });
}

void AttentionCase::MakePool(int64_t page_bytes) {
  std::vector<int64_t*> used;
  for (size_t s = 0; s < intervals_.size(); ++s) {
    const int64_t first_page = first_[s] / kPageTokens;
    const int64_t count = (end_[s] + kPageTokens - 1) / kPageTokens - first_page;
    pages_.emplace_back(Size(count + 1), kNowhere);
  }
  for (size_t s = 0; s < intervals_.size(); ++s) {
    for (int64_t token = first_[s]; token < end_[s]; ++token) {
      int64_t* page = &pages_[s][Size(token / kPageTokens - first_[s] / kPageTokens)];
      if (Sees(static_cast<int64_t>(s), token) && (used.empty() || used.back() != page)) {
        used.push_back(page);
      }
    }
  }
  for (size_t i = used.size(); i > 1; --i) {
    std::swap(used[i - 1], used[Size(random_.Below(static_cast<int64_t>(i)))]);
  }
  for (size_t i = 0; i < used.size(); ++i) {
    *used[i] = static_cast<int64_t>(i) * page_bytes;
  }
  pool_.assign(used.size() * Size(page_bytes), 0xff);
  int64_t row = 0;
  for (size_t s = 0; s < intervals_.size(); ++s) {
    const int64_t rows = static_cast<int64_t>(intervals_[s].size());
    sequences_.push_back({pages_[s].data(), first_[s] / kPageTokens, row, rows});
    row += rows;
  }
}

int64_t AttentionCase::Page(int64_t sequence, int64_t token) const {
  const AttentionSequence& s = sequences_[Size(sequence)];
  return s.pages[token / kPageTokens - s.first_page];
}

int64_t AttentionCase::SequenceOf(int64_t row) const {
  int64_t sequence = 0;
  while (row >= sequences_[Size(sequence)].row_begin + sequences_[Size(sequence)].rows) {
    ++sequence;
  }
  return sequence;
}

AttentionBatch AttentionCase::Batch(double scale) const {
  AttentionBatch batch;
  batch.pool = pool_.data();
  batch.dtype = dtype_;
  batch.sequences = sequences_.data();
  batch.num_sequences = static_cast<int64_t>(sequences_.size());
  batch.lo = lo_.data();
  batch.hi = hi_.data();
  batch.scale = static_cast<float>(scale);
  return batch;
}

AttentionBatch AttentionCase::BatchOf(int64_t sequence, double scale) const {
  AttentionBatch batch = Batch(scale);
  if (sequence >= 0) {
    batch.sequences += sequence;
    batch.num_sequences = 1;
  }
  return batch;
}

AppendTarget AttentionCase::OneRow(const int64_t* page, const int32_t* slot, uint8_t* not_finite) {
  AppendTarget target;
  target.pool = pool_.data();
  target.dtype = dtype_;
  target.page = page;
  target.slot = slot;
  target.not_finite = not_finite;
  target.rows = 1;
  return target;
}

LocalCase::LocalCase(const LocalShape& shape, DType dtype, std::vector<Intervals> sequences,
                     uint64_t seed)
    : AttentionCase(dtype, std::move(sequences), seed),
      scale(1 / std::sqrt(static_cast<double>(shape.d_head))),
      shape_(shape) {
  query_ = random_.Floats(rows() * shape.heads_q * shape.d_head);
  for (size_t s = 0; s < intervals_.size(); ++s) {
    const int64_t elements = (end_[s] - first_[s]) * shape.heads_kv * shape.d_head;
    key_.push_back(random_.Floats(elements));
    value_.push_back(random_.Floats(elements));
  }
  MakePool(PageBytes(shape, dtype_));
}

float* LocalCase::Key(int64_t sequence, int64_t token, int64_t head) {
  const int64_t row = (token - first_[Size(sequence)]) * shape_.heads_kv + head;
  return key_[Size(sequence)].data() + row * shape_.d_head;
}

float* LocalCase::Value(int64_t sequence, int64_t token, int64_t head) {
  const int64_t row = (token - first_[Size(sequence)]) * shape_.heads_kv + head;
  return value_[Size(sequence)].data() + row * shape_.d_head;
}

void LocalCase::Store(Backend& backend) {
  ForTokens([&](int64_t sequence, int64_t token, int64_t page, int32_t slot) {
    uint8_t not_finite = 0;
    AppendLocalParams params;
    params.shape = shape_;
    params.target = OneRow(&page, &slot, &not_finite);
    params.key = Key(sequence, token, 0);
    params.value = Value(sequence, token, 0);
    backend.AppendLocal(params);
    ASSERT_EQ(not_finite, 0);
  });
  for (size_t s = 0; s < key_.size(); ++s) {
    const DType stored = KeyRows(shape_, dtype_, 0).dtype;
    key_[s] = RoundedRows(stored, key_[s], shape_.d_head);
    value_[s] = RoundedRows(stored, value_[s], shape_.d_head);
  }
}

LocalAttentionParams LocalCase::Params(float* output, int64_t only) const {
  LocalAttentionParams params;
  params.shape = shape_;
  params.batch = BatchOf(only, scale);
  params.query = query_.data();
  params.output = output;
  return params;
}

std::vector<float> LocalCase::Run(Backend& backend, int64_t only) const {
  Check(backend.Prepare(Limits(), &shape_, nullptr).ok(), "a test has the memory it needs");
  std::vector<float> output(query_.size(), kNoNumber);
  backend.LocalAttention(Params(output.data(), only));
  return output;
}

std::vector<double> LocalCase::Want() const {
  std::vector<double> want;
  const std::vector<double> query = Doubles(query_);
  for (int64_t row = 0; row < rows(); ++row) {
    const int64_t s = SequenceOf(row);
    const std::vector<double> key = Doubles(key_[Size(s)]);
    const std::vector<double> value = Doubles(value_[Size(s)]);
    for (int64_t h = 0; h < shape_.heads_q; ++h) {
      const int64_t kv = h / shape_.group();
      ReferenceHead head;
      head.key_width = shape_.d_head;
      head.value_width = shape_.d_head;
      head.scale = static_cast<float>(scale);
      head.query = query.data() + h * shape_.d_head;
      head.query_stride = shape_.heads_q * shape_.d_head;
      head.key = key.data() + kv * shape_.d_head;
      head.value = value.data() + kv * shape_.d_head;
      head.key_stride = shape_.heads_kv * shape_.d_head;
      head.value_stride = head.key_stride;
      const int64_t first = first_[Size(s)];
      const std::vector<double> output =
          ReferenceAttend(head, row, {lo_[Size(row)] - first, hi_[Size(row)] - first});
      want.insert(want.end(), output.begin(), output.end());
    }
  }
  return want;
}

GlobalCase::GlobalCase(const GlobalShape& shape, DType cache, DType weights,
                       std::vector<Intervals> sequences, uint64_t seed)
    : AttentionCase(cache, std::move(sequences), seed),
      scale(1 / std::sqrt(static_cast<double>(shape.d_head + shape.d_rope))),
      shape_(shape),
      weight_dtype_(weights) {
  query_ = random_.Floats(rows() * shape.heads_q * shape.d_head);
  rope_query_ = random_.Floats(rows() * shape.heads_q * shape.d_rope);
  for (size_t s = 0; s < intervals_.size(); ++s) {
    latent_.push_back(random_.Floats((end_[s] - first_[s]) * shape.d_latent));
    rope_key_.push_back(random_.Floats((end_[s] - first_[s]) * shape.heads_kv * shape.d_rope));
  }
  const int64_t elements = shape.heads_kv * shape.d_head * shape.d_latent;
  w_uk_ = Rounded(weights, random_.Floats(elements));
  w_uv_ = Rounded(weights, random_.Floats(elements));
  MakePool(PageBytes(shape, dtype_));
}

void GlobalCase::Store(Backend& backend) {
  ForTokens([&](int64_t sequence, int64_t token, int64_t page, int32_t slot) {
    uint8_t not_finite = 0;
    const int64_t row = token - first_[Size(sequence)];
    AppendGlobalParams params;
    params.shape = shape_;
    params.target = OneRow(&page, &slot, &not_finite);
    params.latent = latent_[Size(sequence)].data() + row * shape_.d_latent;
    params.rope_key = rope_key_[Size(sequence)].data() + row * shape_.heads_kv * shape_.d_rope;
    backend.AppendGlobal(params);
    ASSERT_EQ(not_finite, 0);
  });
  for (size_t s = 0; s < latent_.size(); ++s) {
    latent_[s] = RoundedRows(dtype_, latent_[s], shape_.d_latent);
    rope_key_[s] = Rounded(RopeRows(shape_, dtype_).dtype, rope_key_[s]);
  }
  const std::vector<uint8_t> uk = Stored(weight_dtype_, w_uk_);
  const std::vector<uint8_t> uv = Stored(weight_dtype_, w_uv_);
  WeightView view{uk.data(), weight_dtype_, shape_.heads_kv, shape_.d_head, shape_.d_latent};
  expand_key_ = std::move(*backend.Pack(view));
  WeightView absorbed{uk.data(),       weight_dtype_, shape_.heads_kv,
                      shape_.d_latent, shape_.d_head, /*transposed=*/true};
  absorb_key_ = std::move(*backend.Pack(absorbed));
  view.data = uv.data();
  expand_value_ = std::move(*backend.Pack(view));
}

LatentAttentionParams GlobalCase::LatentParams(const float* latent_query, float* output,
                                               int64_t only) const {
  LatentAttentionParams params;
  params.shape = shape_;
  params.batch = BatchOf(only, scale);
  params.query = latent_query;
  params.rope_query = rope_query_.data();
  params.output = output;
  return params;
}

ExpandedAttentionParams GlobalCase::ExpandedParams(float* output, int64_t only) const {
  ExpandedAttentionParams params;
  params.shape = shape_;
  params.batch = BatchOf(only, scale);
  params.expand_key = expand_key_.get();
  params.expand_value = expand_value_.get();
  params.query = query_.data();
  params.rope_query = rope_query_.data();
  params.output = output;
  return params;
}

std::vector<float> GlobalCase::RunExpanded(Backend& backend, int64_t only) const {
  Check(backend.Prepare(Limits(), nullptr, &shape_).ok(), "a test has the memory it needs");
  std::vector<float> output(query_.size(), kNoNumber);
  backend.ExpandedAttention(ExpandedParams(output.data(), only));
  return output;
}

std::vector<float> GlobalCase::LatentQuery(Backend& backend) const {
  std::vector<float> latent_query(Size(rows() * shape_.heads_q * shape_.d_latent), kNoNumber);
  ProjectParams absorb;
  absorb.weight = absorb_key_.get();
  absorb.rows = rows();
  absorb.inner = shape_.group();
  absorb.x = query_.data();
  absorb.x_row = shape_.heads_q * shape_.d_head;
  absorb.x_inner = shape_.d_head;
  absorb.y = latent_query.data();
  absorb.y_row = shape_.heads_q * shape_.d_latent;
  absorb.y_inner = shape_.d_latent;
  backend.Project(absorb);
  return latent_query;
}

std::vector<float> GlobalCase::RunLatent(Backend& backend, int64_t only) const {
  Check(backend.Prepare(Limits(), nullptr, &shape_).ok(), "a test has the memory it needs");
  const std::vector<float> query = LatentQuery(backend);
  std::vector<float> output(query.size(), kNoNumber);
  backend.LatentAttention(LatentParams(query.data(), output.data(), only));
  return output;
}

std::vector<float> GlobalCase::RunAbsorbed(Backend& backend) const {
  const std::vector<float> latent = RunLatent(backend);
  std::vector<float> output(query_.size(), kNoNumber);
  ProjectParams expand;
  expand.weight = expand_value_.get();
  expand.rows = rows();
  expand.inner = shape_.group();
  expand.x = latent.data();
  expand.x_row = shape_.heads_q * shape_.d_latent;
  expand.x_inner = shape_.d_latent;
  expand.y = output.data();
  expand.y_row = shape_.heads_q * shape_.d_head;
  expand.y_inner = shape_.d_head;
  backend.Project(expand);
  return output;
}

std::vector<double> GlobalCase::Want() const {
  std::vector<double> want;
  const int64_t width = shape_.d_head + shape_.d_rope;
  for (size_t s = 0; s < intervals_.size(); ++s) {
    const int64_t tokens = end_[s] - first_[s];
    for (int64_t i = 0; i < sequences_[s].rows; ++i) {
      const int64_t row = sequences_[s].row_begin + i;
      for (int64_t kv = 0; kv < shape_.heads_kv; ++kv) {
        // Keys and values of this KV head, expanded plainly.
        std::vector<double> key(Size(tokens * width));
        std::vector<double> value(Size(tokens * shape_.d_head));
        for (int64_t t = lo_[Size(row)] - first_[s]; t < hi_[Size(row)] - first_[s]; ++t) {
          const float* latent = latent_[s].data() + t * shape_.d_latent;
          for (int64_t n = 0; n < shape_.d_head; ++n) {
            const int64_t w = (kv * shape_.d_head + n) * shape_.d_latent;
            for (int64_t k = 0; k < shape_.d_latent; ++k) {
              key[Size(t * width + n)] += double{latent[k]} * w_uk_[Size(w + k)];
              value[Size(t * shape_.d_head + n)] += double{latent[k]} * w_uv_[Size(w + k)];
            }
          }
          for (int64_t k = 0; k < shape_.d_rope; ++k) {
            key[Size(t * width + shape_.d_head + k)] =
                rope_key_[s][Size((t * shape_.heads_kv + kv) * shape_.d_rope + k)];
          }
        }
        for (int64_t g = 0; g < shape_.group(); ++g) {
          const int64_t packed = row * shape_.heads_q + kv * shape_.group() + g;
          const float* content = query_.data() + packed * shape_.d_head;
          const float* rope = rope_query_.data() + packed * shape_.d_rope;
          std::vector<double> query(content, content + shape_.d_head);
          query.insert(query.end(), rope, rope + shape_.d_rope);
          ReferenceHead head;
          head.key_width = width;
          head.value_width = shape_.d_head;
          head.scale = static_cast<float>(scale);
          head.query = query.data();
          head.key = key.data();
          head.key_stride = width;
          head.value = value.data();
          head.value_stride = shape_.d_head;
          const std::vector<double> output =
              ReferenceAttend(head, 0, {lo_[Size(row)] - first_[s], hi_[Size(row)] - first_[s]});
          want.insert(want.end(), output.begin(), output.end());
        }
      }
    }
  }
  return want;
}

}  // namespace attnd::kernels
