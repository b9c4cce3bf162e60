// Grouped-query attention on tensor cores against float64.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cache_layout.h"
#include "kernels/cuda/gqa/gqa.h"
#include "tests/gpu/checks.h"
#include "tests/gpu/values.h"

namespace attnd::gpu {
namespace {

using namespace kernels::cuda;

struct Shape {
  int64_t heads_kv, group, content, rope, value;
};

// The weights of the second product are rounded to the element: half a unit of 8 or 11 bits each.
double Tolerance(DType dtype) { return dtype == DType::kBF16 ? 4e-3 : 5e-4; }

class Case {
 public:
  Case(Device& device, const Shape& shape, DType dtype, std::vector<Intervals> sequences,
       Random& random)
      : device_(device),
        shape_(shape),
        dtype_(dtype),
        batch_(device, std::move(sequences), PageBytes(), random),
        query_(device, Round(random.Floats(Pairs() * shape.content))),
        rope_query_(device, Round(random.Floats(Pairs() * shape.rope))) {
    for (int64_t s = 0; s < batch_.sequences(); ++s) {
      const int64_t rows = batch_.tokens(s) * shape_.heads_kv;
      keys_.push_back(Round(random.Floats(rows * KeyWidth())));
      values_.push_back(Round(random.Floats(rows * shape_.value)));
      Store(s);
    }
    batch_.Upload();
  }

  std::vector<float> Run(GqaVariant variant, int32_t split_keys, int64_t only = -1) {
    GqaParams params = Params(only);
    Buffer<float> output(device_, Pairs() * shape_.value);
    params.output = output.data();
    const ScheduleMemory memory = MemoryFor(params, variant);
    params.schedule = memory.Get();
    Launch(params, variant, split_keys);
    quiet_ = quiet_ && memory.Quiet();
    return output.Get();
  }

  // All keys in blocks of `block`, state carried from one to the next.
  std::vector<float> RunCarried(int64_t block) {
    GqaParams params = Params(-1);
    Buffer<float> output(device_, Pairs() * shape_.value);
    Buffer<float> carry(device_, Pairs() * (shape_.value + 2));
    params.output = output.data();
    params.carry = carry.data();
    int64_t end = 0;
    for (int64_t s = 0; s < batch_.sequences(); ++s) {
      end = std::max(end, batch_.first_token(s) + batch_.tokens(s));
    }
    const ScheduleMemory memory = MemoryFor(params, GqaVariant::kPrefill);
    params.schedule = memory.Get();
    for (int64_t begin = 0; begin < end; begin += block) {
      params.carry_begin = begin;
      params.carry_end = begin + block;
      params.carry_first = begin == 0;
      params.carry_last = begin + block >= end;
      Launch(params, GqaVariant::kPrefill, kOneSplit);
    }
    return output.Get();
  }

  std::vector<double> Want() const {
    const WantedShape shape{shape_.heads_kv, shape_.group, shape_.content,
                            shape_.rope,     shape_.value, Scale()};
    return Wanted(batch_, shape, query_.Get(), rope_query_.Get(), [&](int64_t s, int64_t head) {
      HeadValues of;
      for (int64_t t = 0; t < batch_.tokens(s); ++t) {
        const float* key = Key(s, t, head);
        const float* value = Value(s, t, head);
        of.key.insert(of.key.end(), key, key + KeyWidth());
        of.value.insert(of.value.end(), value, value + shape_.value);
      }
      return of;
    });
  }

  const RaggedBatch& batch() const { return batch_; }
  bool quiet() const { return quiet_; }  // no launch left a counter behind

 private:
  int64_t KeyWidth() const { return shape_.content + shape_.rope; }
  int64_t Pairs() const { return batch_.rows() * shape_.heads_kv * shape_.group; }
  int64_t PageBytes() const {
    return kernels::kPageTokens * shape_.heads_kv * (KeyWidth() + shape_.value) * 2;
  }
  double Scale() const { return 1 / std::sqrt(static_cast<double>(KeyWidth())); }
  std::vector<float> Round(const std::vector<float>& values) const {
    return Stored(dtype_, values, 1);
  }
  const float* Key(int64_t s, int64_t token, int64_t head) const {
    return keys_[static_cast<size_t>(s)].data() + (token * shape_.heads_kv + head) * KeyWidth();
  }
  const float* Value(int64_t s, int64_t token, int64_t head) const {
    return values_[static_cast<size_t>(s)].data() + (token * shape_.heads_kv + head) * shape_.value;
  }

  // A page: keys [heads_kv][64][content + rope], then values likewise.
  GqaParams Params(int64_t only) const {
    GqaParams params;
    params.batch = batch_.View(only);
    params.keys.stride = 2 * KeyWidth();
    params.keys.head_step = kernels::kPageTokens * params.keys.stride;
    params.values.offset = shape_.heads_kv * params.keys.head_step;
    params.values.stride = 2 * shape_.value;
    params.values.head_step = kernels::kPageTokens * params.values.stride;
    params.query = query_.data();
    params.rope_query = shape_.rope > 0 ? rope_query_.data() : nullptr;
    params.heads_kv = static_cast<int32_t>(shape_.heads_kv);
    params.group = static_cast<int32_t>(shape_.group);
    params.content_width = static_cast<int32_t>(shape_.content);
    params.rope_width = static_cast<int32_t>(shape_.rope);
    params.value_width = static_cast<int32_t>(shape_.value);
    params.scale_log2 = static_cast<float>(Scale() * std::log2(std::exp(1.0)));
    return params;
  }

  // Only what a row sees: the rest of the pages stays poison.
  void Store(int64_t s) {
    const GqaParams params = Params(-1);
    for (int64_t t = 0; t < batch_.tokens(s); ++t) {
      const int64_t token = batch_.first_token(s) + t;
      if (!batch_.SeesAny(s, token)) {
        continue;
      }
      uint8_t* page = batch_.Page(s, token);
      for (int64_t h = 0; h < shape_.heads_kv; ++h) {
        const HeadRows& k = params.keys;
        const HeadRows& v = params.values;
        kernels::StoreRow({dtype_, k.offset + h * k.head_step, k.stride}, token % 64, Key(s, t, h),
                          KeyWidth(), page);
        kernels::StoreRow({dtype_, v.offset + h * v.head_step, v.stride}, token % 64,
                          Value(s, t, h), shape_.value, page);
      }
    }
  }

  ScheduleMemory MemoryFor(const GqaParams& params, GqaVariant variant) const {
    const TileShape tiles = GqaTiles(params, variant);
    return {device_, batch_.sequences(), batch_.MostWork(tiles), tiles.unit_rows, shape_.value};
  }

  void Launch(const GqaParams& params, GqaVariant variant, int32_t split_keys) {
    const int blocks =
        device_.info().multiprocessors *
        GqaBlocksPerMultiprocessor(params, variant, device_.info().multiprocessor_shared_bytes);
    ScheduleParams schedule;
    schedule.sequences = params.batch.sequences;
    schedule.schedule = params.schedule;
    schedule.tiles = GqaTiles(params, variant);
    schedule.num_sequences = params.batch.num_sequences;
    schedule.split_keys = split_keys;
    schedule.blocks = blocks;
    LaunchSchedule(device_.stream(), schedule);
    device_.Synchronize("the scheduling kernel");
    LaunchGqa(device_.stream(), variant, dtype_, params, blocks);
    device_.Synchronize("the grouped-query attention kernel");
  }

  Device& device_;
  const Shape shape_;
  const DType dtype_;
  RaggedBatch batch_;
  Buffer<float> query_, rope_query_;
  std::vector<std::vector<float>> keys_, values_;
  bool quiet_ = true;
};

std::string NameOf(const Shape& s, DType dtype) {
  return std::string(DTypeName(dtype)) + " " + std::to_string(s.heads_kv) + "x" +
         std::to_string(s.group) + " heads " + std::to_string(s.content) + "+" +
         std::to_string(s.rope) + "/" + std::to_string(s.value);
}

std::string SplitName(int32_t split_keys) {
  return split_keys == 0           ? " chosen splits"
         : split_keys == kOneSplit ? " one split"
                                   : " splits of " + std::to_string(split_keys);
}

void CheckShape(Device& device, Report& report, const Shape& shape, DType dtype,
                const std::vector<Intervals>& sequences, Random& random) {
  Case c(device, shape, dtype, sequences, random);
  const std::vector<double> want = c.Want();
  for (GqaVariant variant : {GqaVariant::kDecode, GqaVariant::kPrefill}) {
    const std::string name =
        NameOf(shape, dtype) + (variant == GqaVariant::kDecode ? " decode" : " prefill");
    for (int32_t split_keys : {kOneSplit, 0, 64}) {
      report.Near("gqa", name + SplitName(split_keys), c.Run(variant, split_keys), want,
                  Tolerance(dtype));
    }
    report.Same("gqa", name + " alone or in a batch", c.Run(variant, 256),
                EachAlone(c.batch(), [&](int64_t only) { return c.Run(variant, 256, only); }));
  }
  const std::vector<float> whole = c.Run(GqaVariant::kPrefill, kOneSplit);
  report.Same("gqa", NameOf(shape, dtype) + " carried state", c.RunCarried(128), whole);
  report.Holds("gqa", NameOf(shape, dtype) + " counters are zero again", c.quiet());
}

}  // namespace

void CheckGqa(Device& device, Report& report, Size size, uint64_t seed) {
  Random random(seed);
  const Shape shapes[] = {
      {2, 3, 64, 0, 64},   {8, 16, 128, 0, 128}, {2, 16, 128, 64, 128}, {1, 5, 24, 8, 40},
      {1, 128, 64, 0, 64}, {3, 1, 128, 0, 128},  {4, 12, 72, 56, 96},
  };
  const size_t count = size == Size::kTiny ? 1 : size == Size::kSmall ? 3 : std::size(shapes);
  const int64_t keys = size == Size::kTiny ? 150 : size == Size::kSmall ? 300 : 1500;
  for (size_t i = 0; i < count; ++i) {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      const bool tiny = size != Size::kFull;
      const auto sequences = RaggedSequences(random, tiny ? 3 : 9, tiny ? 6 : 40, keys);
      CheckShape(device, report, shapes[i], dtype, sequences, random);
    }
  }
}

}  // namespace attnd::gpu
