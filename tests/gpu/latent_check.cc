// Absorbed MLA attention on tensor cores against float64.
#include <cmath>
#include <string>

#include "kernels/cache_layout.h"
#include "kernels/cuda/latent/latent.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/values.h"

namespace attnd::gpu {
namespace {

using namespace kernels::cuda;
using kernels::GlobalShape;
using kernels::PageRows;

// As in gqa_check.cc; e4m3 is compared with what is stored, and multiplied as bf16.
double Tolerance(DType dtype) { return dtype == DType::kF16 ? 5e-4 : 4e-3; }

class Case {
 public:
  Case(Device& device, const GlobalShape& shape, DType dtype, std::vector<Intervals> sequences,
       Random& random)
      : device_(device),
        shape_(shape),
        dtype_(dtype),
        element_(kernels::RopeRows(shape, dtype).dtype),
        batch_(device, std::move(sequences), kernels::PageBytes(shape, dtype), random),
        query_(device, Stored(element_, random.Floats(Pairs() * shape.d_latent), 1)),
        rope_query_(device, Stored(element_, random.Floats(Pairs() * shape.d_rope), 1)) {
    const PageRows latents = kernels::LatentRows(shape, dtype);
    const PageRows ropes = kernels::RopeRows(shape, dtype);
    for (int64_t s = 0; s < batch_.sequences(); ++s) {
      latents_.push_back(random.Floats(batch_.tokens(s) * shape.d_latent));
      ropes_.push_back(Stored(element_, random.Floats(batch_.tokens(s) * RopeWidth()), 1));
      for (int64_t t = 0; t < batch_.tokens(s); ++t) {
        const int64_t token = batch_.first_token(s) + t;
        if (!batch_.SeesAny(s, token)) {
          continue;
        }
        uint8_t* page = batch_.Page(s, token);
        kernels::StoreRow(latents, token % 64, latents_.back().data() + t * shape.d_latent,
                          shape.d_latent, page);
        kernels::StoreRow(ropes, token % 64, ropes_.back().data() + t * RopeWidth(), RopeWidth(),
                          page);
      }
      latents_.back() = Stored(dtype, latents_.back(), shape.d_latent);
    }
    batch_.Upload();
  }

  // False when the launcher has no kernel for the shape on this device.
  bool Planned() const { return Plan().ok(); }

  std::vector<float> Run(int32_t split_keys, int64_t only = -1) {
    LatentParams params = Params(only);
    const LatentPlan plan = Plan();
    const TileShape tiles = LatentTiles(plan, params);
    const ScheduleMemory memory(device_, batch_.sequences(), batch_.MostWork(tiles),
                                plan.tile_rows(), shape_.d_latent);
    Buffer<float> output(device_, Pairs() * shape_.d_latent);
    params.output = output.data();
    params.schedule = memory.Get();
    ScheduleParams schedule;
    schedule.sequences = params.batch.sequences;
    schedule.schedule = params.schedule;
    schedule.tiles = tiles;
    schedule.num_sequences = params.batch.num_sequences;
    schedule.split_keys = split_keys;
    schedule.blocks = device_.info().multiprocessors;
    LaunchSchedule(device_.stream(), schedule);
    device_.Synchronize("the scheduling kernel");
    LaunchLatent(device_.stream(), dtype_, plan, params, schedule.blocks);
    device_.Synchronize("the latent attention kernel");
    quiet_ = quiet_ && memory.Quiet();
    return output.Get();
  }

  std::vector<double> Want() const {
    const WantedShape shape{shape_.heads_kv, shape_.group(),  shape_.d_latent,
                            shape_.d_rope,   shape_.d_latent, Scale()};
    return Wanted(batch_, shape, query_.Get(), rope_query_.Get(), [&](int64_t s, int64_t head) {
      HeadValues of;
      for (int64_t t = 0; t < batch_.tokens(s); ++t) {
        const float* latent = latents_[static_cast<size_t>(s)].data() + t * shape_.d_latent;
        const float* rope =
            ropes_[static_cast<size_t>(s)].data() + t * RopeWidth() + head * shape_.d_rope;
        of.key.insert(of.key.end(), latent, latent + shape_.d_latent);
        of.key.insert(of.key.end(), rope, rope + shape_.d_rope);
        of.value.insert(of.value.end(), latent, latent + shape_.d_latent);
      }
      return of;
    });
  }

  const RaggedBatch& batch() const { return batch_; }
  bool quiet() const { return quiet_; }

 private:
  int64_t Pairs() const { return batch_.rows() * shape_.heads_q; }
  int64_t RopeWidth() const { return shape_.heads_kv * shape_.d_rope; }
  double Scale() const { return 1 / std::sqrt(static_cast<double>(shape_.d_head + shape_.d_rope)); }
  LatentPlan Plan() const {
    return PlanLatent(dtype_, Params(-1), device_.info().block_shared_bytes);
  }

  LatentParams Params(int64_t only) const {
    const PageRows latents = kernels::LatentRows(shape_, dtype_);
    const PageRows ropes = kernels::RopeRows(shape_, dtype_);
    LatentParams params;
    params.batch = batch_.View(only);
    params.latent_offset = latents.offset;
    params.latent_stride = latents.stride;
    params.scales = latents.scales;
    params.rope_offset = ropes.offset;
    params.rope_stride = ropes.stride;
    params.query = query_.data();
    params.rope_query = rope_query_.data();
    params.heads_kv = static_cast<int32_t>(shape_.heads_kv);
    params.group = static_cast<int32_t>(shape_.group());
    params.d_latent = static_cast<int32_t>(shape_.d_latent);
    params.d_rope = static_cast<int32_t>(shape_.d_rope);
    params.scale_log2 = static_cast<float>(Scale() * std::log2(std::exp(1.0)));
    return params;
  }

  Device& device_;
  const GlobalShape shape_;
  const DType dtype_;
  const DType element_;  // of rope keys and tensor cores
  RaggedBatch batch_;
  Buffer<float> query_, rope_query_;
  std::vector<std::vector<float>> latents_, ropes_;
  bool quiet_ = true;
};

void CheckShape(Device& device, Report& report, const GlobalShape& shape, DType dtype,
                const std::vector<Intervals>& sequences, Random& random) {
  Case c(device, shape, dtype, sequences, random);
  const std::string name = std::string(DTypeName(dtype)) + " " + std::to_string(shape.heads_q) +
                           "/" + std::to_string(shape.heads_kv) + " heads " +
                           std::to_string(shape.d_latent) + "+" + std::to_string(shape.d_rope);
  report.Holds("latent", name + " has a kernel here", c.Planned());
  if (!c.Planned()) {
    return;
  }
  const std::vector<double> want = c.Want();
  for (int32_t split_keys : {kOneSplit, 0, 64}) {
    report.Near("latent", name + " splits " + std::to_string(split_keys), c.Run(split_keys), want,
                Tolerance(dtype));
  }
  report.Same("latent", name + " alone or in a batch", c.Run(256),
              EachAlone(c.batch(), [&](int64_t only) { return c.Run(256, only); }));
  report.Holds("latent", name + " counters are zero again", c.quiet());
}

}  // namespace

void CheckLatent(Device& device, Report& report, Size size, uint64_t seed) {
  Random random(seed);
  const GlobalShape shapes[] = {
      {8, 2, 64, 64, 128},  // heads_q, heads_kv, d_head, d_rope, d_latent
      {16, 1, 128, 64, 512},  {128, 8, 128, 64, 512}, {12, 4, 40, 16, 96},
      {128, 1, 128, 64, 512}, {3, 3, 16, 8, 16},      {40, 8, 128, 64, 256},
  };
  const size_t count = size == Size::kTiny ? 1 : size == Size::kSmall ? 3 : std::size(shapes);
  const int64_t keys = size == Size::kTiny ? 130 : size == Size::kSmall ? 200 : 1200;
  for (size_t i = 0; i < count; ++i) {
    for (DType dtype : {DType::kBF16, DType::kF16, DType::kFp8E4M3}) {
      const bool tiny = size != Size::kFull;
      const auto sequences = RaggedSequences(random, tiny ? 2 : 5, tiny ? 3 : 8, keys);
      CheckShape(device, report, shapes[i], dtype, sequences, random);
    }
  }
}

}  // namespace attnd::gpu
