#include "kernels/cuda/cuda_expand.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/places.h"

namespace attnd::kernels::cuda {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

// Of expanded keys and values: as rope keys are cached.
DType ElementOf(const GlobalShape& shape, DType cache) { return RopeRows(shape, cache).dtype; }

int64_t KeyWidth(const GlobalShape& shape) { return shape.d_head + shape.d_rope; }

int64_t PageBytesOf(const GlobalShape& shape, DType element) {
  return kPageTokens * shape.heads_kv * (KeyWidth(shape) + shape.d_head) * DTypeSize(element);
}

// Rows of expanded pages: keys of all KV heads, then values.
RowPlace KeyPlace(const GlobalShape& shape, DType element) {
  const int64_t stride = KeyWidth(shape) * DTypeSize(element);
  return {element, 0, kPageTokens * stride, stride, 0};
}

RowPlace ValuePlace(const GlobalShape& shape, DType element) {
  const int64_t stride = shape.d_head * DTypeSize(element);
  return {element, shape.heads_kv * KeyPlace(shape, element).head_step, kPageTokens * stride,
          stride, 0};
}

}  // namespace

absl::Status CudaExpansion::Prepare(const BatchLimits& limits, const GlobalShape& s) {
  const int64_t head_rows = s.heads_kv * block_keys_ * s.d_head * kFloat;
  const int64_t pages = block_keys_ / kPageTokens;
  absl::Status status =
      latents_.Allocate(runtime_, "latents of a block", block_keys_ * s.d_latent * kFloat);
  status.Update(keys_.Allocate(runtime_, "expanded keys", head_rows));
  status.Update(values_.Allocate(runtime_, "expanded values", head_rows));
  status.Update(pages_.Allocate(runtime_, "expanded pages", pages * PageBytesOf(s, DType::kF32)));
  status.Update(table_.Allocate(runtime_, "table of expanded pages", pages * 8));
  status.Update(view_.Allocate(runtime_, "an expanded sequence", sizeof(SequenceView)));
  status.Update(carry_.Allocate(runtime_, "carried attention",
                                limits.max_rows * s.heads_q * (s.d_head + 2) * kFloat));
  return status;
}

CudaExpansion::RowRun CudaExpansion::NextRun(const AttentionBatch& batch, int64_t row,
                                             int64_t row_end) {
  RowRun run;
  run.row_begin = row;
  for (; row < row_end; ++row, ++run.rows) {
    if (batch.lo[row] >= batch.hi[row]) {
      continue;
    }
    if (run.keys.begin == run.keys.end) {
      run.keys = {batch.lo[row], batch.hi[row]};
    } else if (batch.lo[row] > run.keys.end) {
      break;
    } else {
      run.keys.end = std::max(run.keys.end, batch.hi[row]);
    }
  }
  return run;
}

void CudaExpansion::UploadTable(const GlobalShape& shape, DType element) {
  std::vector<int64_t> table(static_cast<size_t>(block_keys_ / kPageTokens));
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<int64_t>(i) * PageBytesOf(shape, element);
  }
  staging_->Upload(table_.data(), table.data(), static_cast<int64_t>(table.size()) * 8);
}

void CudaExpansion::Run(const ExpandedAttentionParams& params, const BatchView& batch,
                        const SequenceView& view) {
  UploadTable(params.shape, ElementOf(params.shape, params.batch.dtype));
  const int64_t row_end = view.row_begin + view.rows;
  for (int64_t row = view.row_begin; row < row_end;) {
    const RowRun run = NextRun(params.batch, row, row_end);
    row += run.rows;
    Block block{run.keys.begin, run.keys.begin, true, false};
    do {
      block.begin = block.end;
      block.end = std::min((block.begin / block_keys_ + 1) * block_keys_, run.keys.end);
      block.last = block.end == run.keys.end;
      if (block.begin < block.end) {
        Expand(params, batch, view, block);
      }
      Attend(params, batch, run, block);
      block.first = false;
    } while (!block.last);
  }
}

void CudaExpansion::Expand(const ExpandedAttentionParams& params, const BatchView& batch,
                           const SequenceView& view, const Block& block) {
  const GlobalShape& s = params.shape;
  const auto& key = static_cast<const CudaWeight&>(*params.expand_key);
  const auto& value = static_cast<const CudaWeight&>(*params.expand_value);
  const int64_t tokens = block.end - block.begin;
  const int64_t padded = (tokens + kGemmRows - 1) / kGemmRows * kGemmRows;
  GatherLatentsParams gather;
  gather.pool = batch.pool;
  gather.pages = batch.pages + view.page_table;
  gather.first_page = view.first_page;
  gather.latents = LatentPlace(s, params.batch.dtype);
  gather.gathered = latents_.data();
  gather.first = block.begin;
  gather.tokens = tokens;
  gather.padded = padded;
  gather.width = s.d_latent;
  const auto expand = [&](const CudaWeight& weight, float* to) {
    projector_->Multiply(weight, {latents_.data(), 0, to, padded * s.d_head, tokens});
  };
  gather.dtype = key.dtype;
  LaunchGatherLatents(runtime_->stream(), GridFor(*runtime_, padded), gather);
  expand(key, keys_.as<float>());
  if (value.dtype != key.dtype) {
    gather.dtype = value.dtype;
    LaunchGatherLatents(runtime_->stream(), GridFor(*runtime_, padded), gather);
  }
  expand(value, values_.as<float>());
  WriteExpandedParams write;
  write.pool = batch.pool;
  write.pages = gather.pages;
  write.first_page = gather.first_page;
  write.ropes = RopePlace(s, params.batch.dtype);
  write.keys = keys_.as<float>();
  write.values = values_.as<float>();
  write.expanded = pages_.data();
  write.dtype = ElementOf(s, params.batch.dtype);
  write.first = block.begin;
  write.tokens = tokens;
  write.padded = padded;
  write.heads_kv = static_cast<int32_t>(s.heads_kv);
  write.d_head = static_cast<int32_t>(s.d_head);
  write.d_rope = static_cast<int32_t>(s.d_rope);
  LaunchWriteExpanded(runtime_->stream(), GridFor(*runtime_, tokens * s.heads_kv), write);
}

void CudaExpansion::Attend(const ExpandedAttentionParams& params, const BatchView& batch,
                           const RowRun& run, const Block& block) {
  const GlobalShape& s = params.shape;
  const DType element = ElementOf(s, params.batch.dtype);
  SequenceView view;
  view.first_page = block.begin / kPageTokens;
  view.key_begin = block.begin;
  view.key_end = block.end;
  view.row_begin = static_cast<int32_t>(run.row_begin);
  view.rows = static_cast<int32_t>(run.rows);
  staging_->Upload(view_.data(), &view, sizeof(view));
  staging_->Flush();

  GqaParams gqa;
  gqa.batch = batch;
  gqa.batch.pool = pages_.data();
  gqa.batch.sequences = view_.as<SequenceView>();
  gqa.batch.pages = table_.as<int64_t>();
  gqa.batch.num_sequences = 1;
  gqa.keys = HeadsOf(KeyPlace(s, element));
  gqa.values = HeadsOf(ValuePlace(s, element));
  gqa.query = params.query;
  gqa.rope_query = params.rope_query;
  gqa.output = params.output;
  gqa.carry = block.first && block.last ? nullptr : carry_.as<float>();
  gqa.carry_begin = block.begin;
  gqa.carry_end = block.end;
  gqa.carry_first = block.first;
  gqa.carry_last = block.last;
  gqa.heads_kv = static_cast<int32_t>(s.heads_kv);
  gqa.group = static_cast<int32_t>(s.group());
  gqa.content_width = static_cast<int32_t>(s.d_head);
  gqa.rope_width = static_cast<int32_t>(s.d_rope);
  gqa.value_width = gqa.content_width;
  gqa.scale_log2 = ScaleLog2(params.batch.scale);

  PlainParams plain{static_cast<const HeadOperands&>(gqa)};
  plain.batch = gqa.batch;
  plain.rows = view.row_begin + view.rows;
  plain.content = KeyPlace(s, element);
  plain.rope = plain.content;
  plain.rope.offset += s.d_head * DTypeSize(element);
  plain.value = ValuePlace(s, element);
  attention_->LaunchWhole(gqa, plain, element, run.rows);
}

}  // namespace attnd::kernels::cuda
