#include "tests/gpu/attend.h"

#include <algorithm>
#include <cmath>

#include "kernels/cache_layout.h"
#include "kernels/cuda/gqa/gqa.h"
#include "kernels/cuda/latent/latent.h"
#include "kernels/cuda/plain/plain_attention.h"

namespace attnd::gpu {
namespace {

using namespace kernels::cuda;

// A sequence in the device's memory as a batch, and the memory of its schedule.
class OneSequence {
 public:
  OneSequence(Device& device, const Sequence& sequence)
      : device_(device),
        view_(device, std::vector<SequenceView>{ViewOf(sequence)}),
        lo_(device, Bounds(sequence, &ReferenceInterval::lo)),
        hi_(device, Bounds(sequence, &ReferenceInterval::hi)),
        keys_(ViewOf(sequence).key_end) {
    batch_.pool = sequence.pool;
    batch_.sequences = view_.data();
    batch_.pages = sequence.pages;
    batch_.lo = lo_.data();
    batch_.hi = hi_.data();
    batch_.num_sequences = 1;
  }

  const BatchView& batch() const { return batch_; }
  int64_t rows() const { return lo_.size(); }

  ScheduleMemory Memory(const TileShape& tiles, int64_t tile_rows, int64_t value_width) const {
    const int64_t work = TileCount(tiles, static_cast<int32_t>(rows())) * (keys_ / 64 + 2);
    return {device_, 1, work, tile_rows, value_width};
  }
  void Fill(const Schedule& memory, const TileShape& tiles, int blocks) const {
    ScheduleParams schedule;
    schedule.sequences = view_.data();
    schedule.schedule = memory;
    schedule.tiles = tiles;
    schedule.num_sequences = 1;
    schedule.blocks = blocks;
    LaunchSchedule(device_.stream(), schedule);
  }

 private:
  static std::vector<int64_t> Bounds(const Sequence& sequence, int64_t ReferenceInterval::*bound) {
    std::vector<int64_t> bounds;
    for (const ReferenceInterval& row : sequence.rows) {
      bounds.push_back(row.*bound);
    }
    return bounds;
  }
  static SequenceView ViewOf(const Sequence& sequence) {
    SequenceView view;
    view.rows = static_cast<int32_t>(sequence.rows.size());
    view.key_begin = sequence.rows.front().lo;
    for (const ReferenceInterval& row : sequence.rows) {
      view.key_end = std::max(view.key_end, row.hi);
    }
    return view;
  }

  Device& device_;
  Buffer<SequenceView> view_;
  Buffer<int64_t> lo_, hi_;
  BatchView batch_;
  int64_t keys_;
};

HeadOperands OperandsOf(const HeadAttention& a) {
  HeadOperands operands;
  operands.query = a.query;
  operands.rope_query = a.rope_query;
  operands.output = a.output;
  operands.heads_kv = static_cast<int32_t>(a.heads_kv);
  operands.group = static_cast<int32_t>(a.group);
  operands.content_width = static_cast<int32_t>(a.content_width);
  operands.rope_width = static_cast<int32_t>(a.rope_width);
  operands.value_width = static_cast<int32_t>(a.value_width);
  operands.scale_log2 = ScaleLog2(a.scale);
  return operands;
}

PlainParams PlainOf(const OneSequence& one, const HeadAttention& a) {
  PlainParams params{OperandsOf(a)};
  params.batch = one.batch();
  params.rows = static_cast<int32_t>(one.rows());
  params.content = a.content;
  params.rope = a.rope;
  params.value = a.value;
  return params;
}

GqaParams GqaOf(const OneSequence& one, const HeadAttention& a) {
  GqaParams params{OperandsOf(a)};
  params.batch = one.batch();
  params.keys = {a.content.offset, a.content.head_step, a.content.stride};
  params.values = {a.value.offset, a.value.head_step, a.value.stride};
  return params;
}

void Plain(Device& device, const PlainParams& params) {
  LaunchPlainAttention(device.stream(), device.info().multiprocessors * 4, params);
  device.Synchronize("the plain attention kernel");
}

}  // namespace

bool Attend(Device& device, const Sequence& sequence, const HeadAttention& attention) {
  const OneSequence one(device, sequence);
  GqaParams params = GqaOf(one, attention);
  if (!GqaSupports(params, attention.content.dtype)) {
    Plain(device, PlainOf(one, attention));
    return false;
  }
  const GqaVariant variant = ChooseGqaVariant(params, one.rows());
  const int blocks =
      device.info().multiprocessors *
      GqaBlocksPerMultiprocessor(params, variant, device.info().multiprocessor_shared_bytes);
  const TileShape tiles = GqaTiles(params, variant);
  const ScheduleMemory memory = one.Memory(tiles, tiles.unit_rows, params.value_width);
  params.schedule = memory.Get();
  one.Fill(params.schedule, tiles, blocks);
  LaunchGqa(device.stream(), variant, attention.content.dtype, params, blocks);
  device.Synchronize("the grouped-query attention kernel");
  return true;
}

bool AttendLatents(Device& device, const Sequence& sequence, const kernels::GlobalShape& shape,
                   DType cache, double scale, const float* query, const float* rope_query,
                   float* output) {
  const OneSequence one(device, sequence);
  const kernels::PageRows latents = kernels::LatentRows(shape, cache);
  const kernels::PageRows ropes = kernels::RopeRows(shape, cache);
  LatentParams params;
  params.batch = one.batch();
  params.latent_offset = latents.offset;
  params.latent_stride = latents.stride;
  params.scales = latents.scales;
  params.rope_offset = ropes.offset;
  params.rope_stride = ropes.stride;
  params.query = query;
  params.rope_query = rope_query;
  params.output = output;
  params.heads_kv = static_cast<int32_t>(shape.heads_kv);
  params.group = static_cast<int32_t>(shape.group());
  params.d_latent = static_cast<int32_t>(shape.d_latent);
  params.d_rope = static_cast<int32_t>(shape.d_rope);
  params.scale_log2 = ScaleLog2(scale);
  const LatentPlan plan = PlanLatent(cache, params, device.info().block_shared_bytes);
  if (!plan.ok()) {
    HeadAttention plain;
    plain.heads_kv = shape.heads_kv;
    plain.group = shape.group();
    plain.content = {latents.dtype, latents.offset, 0, latents.stride, latents.scales};
    plain.value = plain.content;
    plain.rope = {ropes.dtype, ropes.offset, shape.d_rope * DTypeSize(ropes.dtype), ropes.stride,
                  0};
    plain.content_width = plain.value_width = shape.d_latent;
    plain.rope_width = shape.d_rope;
    plain.scale = scale;
    plain.query = query;
    plain.rope_query = rope_query;
    plain.output = output;
    Plain(device, PlainOf(one, plain));
    return false;
  }
  const TileShape tiles = LatentTiles(plan, params);
  const ScheduleMemory memory = one.Memory(tiles, plan.tile_rows(), shape.d_latent);
  params.schedule = memory.Get();
  one.Fill(params.schedule, tiles, device.info().multiprocessors);
  LaunchLatent(device.stream(), cache, plan, params, device.info().multiprocessors);
  device.Synchronize("the latent attention kernel");
  return true;
}

}  // namespace attnd::gpu
