// A global problem over a shadow: its pages lie in another order than those of the latents, and
// every byte that no row sees is 0xff, a NaN.
#include <algorithm>

#include "kernels/check.h"
#include "tests/kernels/attention_case.h"

namespace attnd::kernels {

void GlobalCase::MakeShadow() {
  const int64_t page_bytes = ShadowOf(shape_).row_elements() * kPageTokens * DTypeSize(DType::kF32);
  int64_t count = 0;
  shadow_pages_.clear();
  for (const std::vector<int64_t>& pages : pages_) {
    count += static_cast<int64_t>(pages.size());
    shadow_pages_.emplace_back(pages.size());
  }
  shadow_.assign(static_cast<size_t>(count * page_bytes), 0xff);
  int64_t next = count;
  shadow_sequences_ = sequences_;
  for (size_t s = 0; s < shadow_pages_.size(); ++s) {
    for (int64_t& page : shadow_pages_[s]) {
      page = --next * page_bytes;
    }
    shadow_sequences_[s].pages = shadow_pages_[s].data();
  }
}

void GlobalCase::FillShadow(Backend& backend, int64_t rows_at_once) {
  std::vector<int64_t> page, shadow_page;
  std::vector<int32_t> slot;
  FillShadowParams params;
  params.shape = shape_;
  params.pool = pool_.data();
  params.dtype = dtype_;
  params.shadow = shadow_.data();
  params.expand_key = expand_key_.get();
  params.expand_value = expand_value_.get();
  ForTokens([&](int64_t sequence, int64_t token, int64_t of_latents, int32_t at) {
    const auto s = static_cast<size_t>(sequence);
    const int64_t index = token / kPageTokens - shadow_sequences_[s].first_page;
    page.push_back(of_latents);
    shadow_page.push_back(shadow_pages_[s][static_cast<size_t>(index)]);
    slot.push_back(at);
  });
  const auto rows = static_cast<int64_t>(page.size());
  for (int64_t begin = 0; begin < rows; begin += params.rows) {
    params.rows = std::min(rows_at_once, rows - begin);
    params.page = page.data() + begin;
    params.shadow_page = shadow_page.data() + begin;
    params.slot = slot.data() + begin;
    backend.FillShadow(params);
  }
}

std::vector<float> GlobalCase::RunShadow(Backend& backend, int64_t rows_at_once, int64_t only) {
  Check(backend.Prepare(Limits(), nullptr, &shape_).ok(), "a test has the memory it needs");
  MakeShadow();
  FillShadow(backend, rows_at_once);
  std::vector<float> output(query_.size(), kNoNumber);
  ShadowAttentionParams params;
  params.shape = ShadowOf(shape_);
  params.batch = BatchOf(only, scale);
  params.batch.pool = shadow_.data();
  params.batch.dtype = DType::kF32;
  params.batch.sequences = shadow_sequences_.data() + std::max<int64_t>(0, only);
  params.query = query_.data();
  params.rope_query = rope_query_.data();
  params.output = output.data();
  backend.ShadowAttention(params);
  return output;
}

}  // namespace attnd::kernels
