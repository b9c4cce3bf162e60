#include "kernels/cuda/cuda_attention.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/cache_layout.h"
#include "kernels/check.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/places.h"

namespace attnd::kernels::cuda {
namespace {

// Work items of a launch that has splits: 440 for each multiprocessor of a B200 with 148. More
// where one sequence has more, by thousands of KV heads.
constexpr int64_t kMaxWork = 65536;
constexpr int64_t kTileRows = 64;  // of the largest tile of GQA, and its decode variant's
constexpr int64_t kDecodeRows = 16;
// Up to so many tiles a sequence of latents is cut as one that decodes: one row of 128 heads has 2.
constexpr int64_t kFewLatentTiles = 8;

int64_t PartialBytes(int64_t tile_rows, int64_t width) {
  return tile_rows * (width + 2) * static_cast<int64_t>(sizeof(float));
}

HeadOperands LocalOperands(const LocalShape& shape) {
  HeadOperands operands;
  operands.heads_kv = static_cast<int32_t>(shape.heads_kv);
  operands.group = static_cast<int32_t>(shape.group());
  operands.content_width = static_cast<int32_t>(shape.d_head);
  operands.value_width = operands.content_width;
  operands.scale_log2 = 1;
  return operands;
}

HeadOperands LocalOperands(const LocalOperation& op) {
  HeadOperands operands = LocalOperands(op.shape);
  operands.query = op.query;
  operands.output = op.output;
  operands.scale_log2 = ScaleLog2(op.scale);
  return operands;
}

// Without a batch.
GqaParams LocalParams(const HeadOperands& operands, const LocalShape& shape, DType dtype) {
  GqaParams params{operands};
  params.keys = HeadsOf(PlaceOf(KeyRows(shape, dtype, 0), shape));
  params.values = HeadsOf(PlaceOf(ValueRows(shape, dtype, 0), shape));
  return params;
}

PlainParams PlainLocalParams(const LocalOperation& op) {
  PlainParams params{LocalOperands(op)};
  params.batch = op.batch.view;
  params.rows = op.batch.rows;
  params.content = PlaceOf(KeyRows(op.shape, op.dtype, 0), op.shape);
  params.value = PlaceOf(ValueRows(op.shape, op.dtype, 0), op.shape);
  return params;
}

LatentParams LatentParamsOf(const GlobalShape& shape, DType dtype) {
  const PageRows latents = LatentRows(shape, dtype);
  const PageRows ropes = RopeRows(shape, dtype);
  LatentParams params;
  params.latent_offset = latents.offset;
  params.latent_stride = latents.stride;
  params.scales = latents.scales;
  params.rope_offset = ropes.offset;
  params.rope_stride = ropes.stride;
  params.heads_kv = static_cast<int32_t>(shape.heads_kv);
  params.group = static_cast<int32_t>(shape.group());
  params.d_latent = static_cast<int32_t>(shape.d_latent);
  params.d_rope = static_cast<int32_t>(shape.d_rope);
  params.scale_log2 = 1;
  return params;
}

PlainParams PlainLatentParams(const LatentOperation& op) {
  PlainParams params;
  params.batch = op.batch.view;
  params.rows = op.batch.rows;
  params.content = LatentPlace(op.shape, op.dtype);
  params.value = params.content;
  params.rope = RopePlace(op.shape, op.dtype);
  params.query = op.query;
  params.rope_query = op.rope_query;
  params.output = op.output;
  params.heads_kv = static_cast<int32_t>(op.shape.heads_kv);
  params.group = static_cast<int32_t>(op.shape.group());
  params.content_width = static_cast<int32_t>(op.shape.d_latent);
  params.rope_width = static_cast<int32_t>(op.shape.d_rope);
  params.value_width = params.content_width;
  params.scale_log2 = ScaleLog2(op.scale);
  return params;
}

absl::Status CheckPlain(const DeviceProperties& device, const char* layer, int64_t content,
                        int64_t rope, int64_t value) {
  const int64_t needed = PlainSharedBytes(content, rope, value);
  if (needed <= device.shared_bytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(layer, " layers are ", value, " wide, which needs ", needed,
                   " bytes of shared memory; ", device.name, " has ", device.shared_bytes));
}

}  // namespace

absl::Status CudaAttention::Prepare(const BatchLimits& limits, const LocalShape* local,
                                    const GlobalShape* global) {
  const DeviceProperties& device = runtime_->properties();
  splits_ = std::make_unique<SplitPlan>(options_.deterministic, SpanLimit(limits));
  int64_t partial = options_.partial_bytes;
  max_work_ = kMaxWork;
  absl::Status status;
  // At least the partials of one sequence, whatever it is.
  const auto grow = [&](int64_t decode_tiles, int64_t decode_rows, int64_t heads_q, int64_t width) {
    const int64_t tiles = limits.max_rows * heads_q / kTileRows + heads_q;
    const int64_t decode_work = splits_->MostWork(decode_tiles, 0);
    partial = std::max({partial, decode_work * PartialBytes(decode_rows, width),
                        splits_->MostWork(0, tiles) * PartialBytes(kTileRows, width)});
    max_work_ = std::max(max_work_, decode_work);
  };
  if (local != nullptr) {
    status.Update(CheckPlain(device, "local", local->d_head, 0, local->d_head));
    grow(local->heads_kv, kDecodeRows, local->heads_q, local->d_head);
  }
  if (global != nullptr) {
    status.Update(CheckPlain(device, "global", global->d_latent, global->d_rope, global->d_latent));
    status.Update(CheckPlain(device, "global", global->d_head, global->d_rope, global->d_head));
    grow(kFewLatentTiles, kTileRows, global->heads_q, global->d_latent);
  }
  if (!status.ok()) {
    return status;
  }
  status.Update(work_begin_.Allocate(runtime_, "work of sequences",
                                     (limits.max_sequences + 2) * int64_t{sizeof(int64_t)}));
  status.Update(arrivals_.Allocate(runtime_, "arrivals of splits", max_work_ * 4));
  status.Update(partial_.Allocate(runtime_, "partial results of splits", partial));
  if (status.ok()) {
    runtime_->Zero(arrivals_.data(), arrivals_.bytes());
  }
  return status;
}

LatentPlan CudaAttention::PlanOf(const LatentParams& params, DType dtype) const {
  return options_.tensor_cores ? PlanLatent(dtype, params, runtime_->properties().shared_bytes)
                               : LatentPlan();
}

Classify CudaAttention::ClassifyLocal(const LocalShape& shape, DType dtype) const {
  const GqaParams params = LocalParams(LocalOperands(shape), shape, dtype);
  if (!UsesTensorCores(params, KeyRows(shape, dtype, 0).dtype)) {
    return [](int64_t, int64_t, int64_t) { return 0; };
  }
  return [this, params](int64_t rows, int64_t begin, int64_t end) {
    const GqaVariant variant = ChooseGqaVariant(params, rows);
    return splits_->ClassOf(variant == GqaVariant::kDecode,
                            TileCount(GqaTiles(params, variant), rows), end - begin);
  };
}

Classify CudaAttention::ClassifyLatent(const GlobalShape& shape, DType dtype) const {
  const LatentParams params = LatentParamsOf(shape, dtype);
  const LatentPlan plan = PlanOf(params, dtype);
  if (!plan.ok()) {
    return [](int64_t, int64_t, int64_t) { return 0; };
  }
  const TileShape tiles = LatentTiles(plan, params);
  return [this, tiles](int64_t rows, int64_t begin, int64_t end) {
    const int64_t count = TileCount(tiles, rows);
    return splits_->ClassOf(count <= kFewLatentTiles, count, end - begin);
  };
}

CudaAttention::Form CudaAttention::FormOf(const GqaParams& params, GqaVariant variant) const {
  const DeviceProperties& device = runtime_->properties();
  const TileShape tiles = GqaTiles(params, variant);
  return {tiles, tiles.unit_rows, params.value_width,
          device.multiprocessors *
              GqaBlocksPerMultiprocessor(params, variant, device.multiprocessor_shared_bytes)};
}

CudaAttention::Form CudaAttention::FormOf(const LatentParams& params,
                                          const LatentPlan& plan) const {
  return {LatentTiles(plan, params), plan.tile_rows(), params.d_latent,
          runtime_->properties().multiprocessors};
}

template <typename F>
void CudaAttention::ForShares(const DeviceBatch& batch, const F& launch) {
  int first = 0;
  for (int i = 0; i < kMaxClasses; first += batch.class_sequences[i], ++i) {
    if (batch.class_sequences[i] > 0) {
      launch(Share{splits_->At(i), first, batch.class_sequences[i], batch.class_rows[i]});
    }
  }
}

template <typename F>
void CudaAttention::LaunchShare(const BatchView& view, const Share& share, const Form& form,
                                const F& launch) {
  Schedule schedule;
  schedule.split_keys = work_begin_.as<int32_t>();
  schedule.work_begin = work_begin_.as<int64_t>() + 1;
  schedule.arrivals = arrivals_.as<int32_t>();
  schedule.partial = partial_.as<float>();
  schedule.max_work = static_cast<int32_t>(
      std::min(max_work_, partial_.bytes() / PartialBytes(form.tile_rows, form.width)));
  int each = share.count;
  // One split leaves no partials, and those that the device chooses keep to their room.
  if (share.split.max_splits > 1) {
    // Sequences without rows have no tile.
    const int64_t tiles = std::max<int64_t>(TileCount(form.tiles, share.rows), 1);
    const int64_t work = tiles * share.split.max_splits;
    Check(work <= schedule.max_work, "the partials of a sequence have room");
    each = static_cast<int>(std::min<int64_t>(each, schedule.max_work / work));
  }
  for (int at = 0; at < share.count; at += each) {
    BatchView part = view;
    part.sequences += share.first + at;
    part.num_sequences = std::min(each, share.count - at);
    ScheduleParams params;
    params.sequences = part.sequences;
    params.schedule = schedule;
    params.tiles = form.tiles;
    params.num_sequences = part.num_sequences;
    params.split_keys = share.split.split_keys;
    params.blocks = form.grid;
    LaunchSchedule(runtime_->stream(), params);
    launch(part, schedule);
  }
}

void CudaAttention::LaunchGqaShare(GqaParams params, GqaVariant variant, DType element,
                                   const Share& share) {
  const Form form = FormOf(params, variant);
  LaunchShare(params.batch, share, form, [&](const BatchView& part, const Schedule& schedule) {
    GqaParams launch = params;
    launch.batch = part;
    launch.schedule = schedule;
    LaunchGqa(runtime_->stream(), variant, element, launch, form.grid);
  });
}

void CudaAttention::LaunchPlain(const PlainParams& params) {
  const int64_t items = params.rows * int64_t{params.heads_kv} * params.group;
  LaunchPlainAttention(runtime_->stream(), GridFor(*runtime_, items), params);
}

void CudaAttention::LaunchWhole(GqaParams params, const PlainParams& plain, DType element,
                                int64_t rows) {
  if (!UsesTensorCores(params, element)) {
    LaunchPlain(plain);
    return;
  }
  LaunchGqaShare(params, ChooseGqaVariant(params, rows), element,
                 {{false, kOneSplit, 1}, 0, 1, rows});
}

void CudaAttention::Launch(const LocalOperation& op) {
  const DType element = KeyRows(op.shape, op.dtype, 0).dtype;
  GqaParams params = LocalParams(LocalOperands(op), op.shape, op.dtype);
  if (!UsesTensorCores(params, element)) {
    LaunchPlain(PlainLocalParams(op));
    return;
  }
  params.batch = op.batch.view;
  ForShares(op.batch, [&](const Share& share) {
    const bool decode = share.split.decode;
    LaunchGqaShare(params, decode ? GqaVariant::kDecode : GqaVariant::kPrefill, element, share);
  });
}

void CudaAttention::Launch(const LatentOperation& op) {
  LatentParams params = LatentParamsOf(op.shape, op.dtype);
  const LatentPlan plan = PlanOf(params, op.dtype);
  if (!plan.ok()) {
    LaunchPlain(PlainLatentParams(op));
    return;
  }
  params.query = op.query;
  params.rope_query = op.rope_query;
  params.output = op.output;
  params.scale_log2 = ScaleLog2(op.scale);
  const Form form = FormOf(params, plan);
  ForShares(op.batch, [&](const Share& share) {
    LaunchShare(op.batch.view, share, form, [&](const BatchView& part, const Schedule& schedule) {
      LatentParams launch = params;
      launch.batch = part;
      launch.schedule = schedule;
      LaunchLatent(runtime_->stream(), op.dtype, plan, launch, form.grid);
    });
  });
}

}  // namespace attnd::kernels::cuda
