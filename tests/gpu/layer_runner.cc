#include "tests/gpu/layer_runner.h"

#include <algorithm>
#include <cmath>

#include "kernels/cache_layout.h"
#include "kernels/check.h"
#include "kernels/convert.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "tests/gpu/attend.h"
#include "tests/gpu/batch.h"

namespace attnd::gpu {
namespace {

using namespace kernels::cuda;

constexpr int kBlocks = 64;

std::vector<uint8_t> Bytes(DType dtype, const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * static_cast<size_t>(DTypeSize(dtype)));
  kernels::FromFloat(dtype, values.data(), static_cast<int64_t>(values.size()), bytes.data());
  return bytes;
}

// [groups][out][in] to [groups][in][out].
std::vector<float> Transposed(const std::vector<float>& values, int64_t groups, int64_t out,
                              int64_t in) {
  std::vector<float> transposed(values.size());
  for (int64_t i = 0; i < groups * out * in; ++i) {
    const int64_t g = i / (out * in), o = i / in % out, k = i % in;
    transposed[static_cast<size_t>((g * in + k) * out + o)] = values[static_cast<size_t>(i)];
  }
  return transposed;
}

// Cosines or sines of rows [begin, end).
std::vector<float> Angles(const std::vector<double>& theta, int64_t begin, int64_t end,
                          double (*function)(double)) {
  std::vector<float> values;
  for (int64_t row = begin; row < end; ++row) {
    for (double t : theta) {
      values.push_back(static_cast<float>(function(static_cast<double>(row) * t)));
    }
  }
  return values;
}

}  // namespace

// Rows [begin, end) of the one session, and its pages.
struct LayerRunner::Chunk {
  int64_t begin, end;
  Buffer<uint8_t>& pool;
  const std::vector<int64_t>& pages;
  Buffer<int64_t> device_pages, page_of_row;
  Buffer<int32_t> slot_of_row;
  Buffer<float> cos, sin;
  Sequence sequence;

  int64_t rows() const { return end - begin; }
};

LayerRunner::LayerRunner(Device& device, const GoldenModel& model, const GoldenLayer& layer,
                         const LayerOptions& options)
    : device_(device), model_(model), layer_(layer), options_(options) {
  const int64_t heads_kv = model.shape.heads_kv;
  for (const auto& [name, weight] : layer.weights) {
    const bool by_head = name == "W_UK" || name == "W_UV";
    AddWeight(name, by_head ? heads_kv : 1, false);
  }
  if (layer.global) {
    AddWeight("W_UK", heads_kv, true);
  }
}

void LayerRunner::AddWeight(const std::string& name, int64_t groups, bool transposed) {
  const GoldenWeight& weight = layer_.weights.at(name);
  const int64_t out = weight.out / groups;
  const std::vector<float> values =
      transposed ? Transposed(weight.values, groups, out, weight.in) : weight.values;
  weights_.emplace(transposed ? name + " transposed" : name,
                   Weight{Buffer<uint8_t>(device_, Bytes(options_.weights, values)), groups,
                          transposed ? weight.in : out, transposed ? out : weight.in});
}

Buffer<float> LayerRunner::Project(const Buffer<float>& x, int64_t rows, const std::string& name,
                                   int64_t inner) {
  const Weight& w = weights_.at(name);
  const int64_t m = rows * inner;
  const Buffer<uint8_t> packed(device_, w.groups * m * w.in * DTypeSize(options_.weights));
  PackRowsParams pack;
  pack.x = x.data();
  pack.packed = packed.data();
  pack.from = {w.groups * inner * w.in, w.in, static_cast<int32_t>(inner)};
  pack.dtype = options_.weights;
  pack.rows = pack.padded = m;
  pack.width = w.in;
  pack.groups = static_cast<int32_t>(w.groups);
  LaunchPackRows(device_.stream(), kBlocks, pack);
  const Buffer<float> product(device_, w.groups * m * w.out);
  Product gemm{options_.weights, packed.data(), w.data.data(), product.data(), m, w.out, w.in};
  gemm.batch = w.groups;
  gemm.x_batch = m * w.in;
  gemm.w_batch = w.out * w.in;
  gemm.y_batch = m * w.out;
  device_.Multiply(gemm);
  Buffer<float> y(device_, w.groups * m * w.out);
  UnpackRowsParams unpack;
  unpack.product = product.data();
  unpack.y = y.data();
  unpack.to = {w.groups * inner * w.out, w.out, static_cast<int32_t>(inner)};
  unpack.rows = unpack.padded = m;
  unpack.width = w.out;
  unpack.groups = static_cast<int32_t>(w.groups);
  LaunchUnpackRows(device_.stream(), kBlocks, unpack);
  device_.Synchronize("projecting by " + name);
  return y;
}

Buffer<float> LayerRunner::Rotated(Buffer<float> x, const Chunk& chunk, int64_t heads) {
  const int64_t half = chunk.cos.size() / chunk.rows();
  LaunchRope(device_.stream(), kBlocks,
             {x.data(), chunk.cos.data(), chunk.sin.data(), chunk.rows(), heads, half});
  device_.Synchronize("the rope kernel");
  return x;
}

Buffer<float> LayerRunner::Local(const Buffer<float>& x, Chunk& chunk) {
  const kernels::LocalShape shape{model_.shape.heads_q, model_.shape.heads_kv, model_.shape.d_head};
  const Buffer<float> query = Rotated(Project(x, chunk.rows(), "W_Q"), chunk, shape.heads_q);
  const Buffer<float> key = Rotated(Project(x, chunk.rows(), "W_K"), chunk, shape.heads_kv);
  const Buffer<float> value = Project(x, chunk.rows(), "W_V");
  const Buffer<uint8_t> not_finite(device_,
                                   std::vector<uint8_t>(static_cast<size_t>(chunk.rows())));
  LaunchAppendLocal(device_.stream(), kBlocks,
                    {shape,
                     {chunk.pool.data(), options_.cache, chunk.page_of_row.data(),
                      chunk.slot_of_row.data(), not_finite.data(), chunk.rows()},
                     key.data(),
                     value.data()});
  device_.Synchronize("appending local rows");
  return AttendLocal(query, chunk);
}

Buffer<float> LayerRunner::AttendLocal(const Buffer<float>& query, Chunk& chunk) {
  const kernels::LocalShape shape{model_.shape.heads_q, model_.shape.heads_kv, model_.shape.d_head};
  const kernels::PageRows keys = kernels::KeyRows(shape, options_.cache, 0);
  const kernels::PageRows values = kernels::ValueRows(shape, options_.cache, 0);
  const int64_t head_step = kernels::kPageTokens * keys.stride;
  HeadAttention attention;
  attention.heads_kv = shape.heads_kv;
  attention.group = shape.group();
  attention.content = {keys.dtype, keys.offset, head_step, keys.stride, 0};
  attention.value = {values.dtype, values.offset, head_step, values.stride, 0};
  attention.content_width = attention.value_width = shape.d_head;
  attention.scale = model_.local_scale;
  attention.query = query.data();
  Buffer<float> output(device_, chunk.rows() * shape.heads_q * shape.d_head);
  attention.output = output.data();
  tuned_ = Attend(device_, chunk.sequence, attention);
  return output;
}

Buffer<float> LayerRunner::Global(const Buffer<float>& x, Chunk& chunk) {
  const kernels::GlobalShape& shape = model_.shape;
  const int64_t rows = chunk.rows();
  const Buffer<float> latent = Project(x, rows, "W_DKV");
  const Buffer<float> rope_key = Rotated(Project(x, rows, "W_KR"), chunk, shape.heads_kv);
  const Buffer<float> rope_query = Rotated(Project(x, rows, "W_QR"), chunk, shape.heads_q);
  const Buffer<float> query = Project(Project(x, rows, "W_DQ"), rows, "W_UQ");
  const Buffer<uint8_t> not_finite(device_, std::vector<uint8_t>(static_cast<size_t>(rows)));
  LaunchAppendGlobal(device_.stream(), kBlocks,
                     {shape,
                      {chunk.pool.data(), options_.cache, chunk.page_of_row.data(),
                       chunk.slot_of_row.data(), not_finite.data(), rows},
                      latent.data(),
                      rope_key.data()});
  device_.Synchronize("appending global rows");
  return options_.expanded ? AttendExpanded(query, rope_query, chunk)
                           : AttendAbsorbed(query, rope_query, chunk);
}

Buffer<float> LayerRunner::AttendAbsorbed(const Buffer<float>& query, const Buffer<float>& rope,
                                          Chunk& chunk) {
  const kernels::GlobalShape& shape = model_.shape;
  const Buffer<float> absorbed = Project(query, chunk.rows(), "W_UK transposed", shape.group());
  const Buffer<float> output(device_, chunk.rows() * shape.heads_q * shape.d_latent);
  tuned_ = AttendLatents(device_, chunk.sequence, shape, options_.cache, model_.global_scale,
                         absorbed.data(), rope.data(), output.data());
  return Project(output, chunk.rows(), "W_UV", shape.group());
}

Buffer<float> LayerRunner::Expand(const Buffer<uint8_t>& latents, int64_t padded,
                                  const std::string& name) {
  const Weight& w = weights_.at(name);
  Buffer<float> y(device_, w.groups * padded * w.out);
  Product gemm{options_.weights, latents.data(), w.data.data(), y.data(), padded, w.out, w.in};
  gemm.batch = w.groups;
  gemm.w_batch = w.out * w.in;
  gemm.y_batch = padded * w.out;
  device_.Multiply(gemm);
  return y;
}

Buffer<float> LayerRunner::AttendExpanded(const Buffer<float>& query, const Buffer<float>& rope,
                                          Chunk& chunk) {
  const kernels::GlobalShape& shape = model_.shape;
  const kernels::PageRows latents = kernels::LatentRows(shape, options_.cache);
  const kernels::PageRows ropes = kernels::RopeRows(shape, options_.cache);
  const int64_t tokens = chunk.end, pages = (tokens + 63) / 64, padded = pages * 64;
  const Buffer<uint8_t> gathered(device_, padded * shape.d_latent * DTypeSize(options_.weights));
  GatherLatentsParams gather;
  gather.pool = chunk.pool.data();
  gather.pages = chunk.device_pages.data();
  gather.latents = {latents.dtype, latents.offset, 0, latents.stride, latents.scales};
  gather.gathered = gathered.data();
  gather.dtype = options_.weights;
  gather.tokens = tokens;
  gather.padded = padded;
  gather.width = shape.d_latent;
  LaunchGatherLatents(device_.stream(), kBlocks, gather);
  const Buffer<float> keys = Expand(gathered, padded, "W_UK");
  const Buffer<float> values = Expand(gathered, padded, "W_UV");
  const int64_t size = DTypeSize(options_.weights), key_width = shape.d_head + shape.d_rope;
  const int64_t page_bytes = shape.heads_kv * 64 * (key_width + shape.d_head) * size;
  Buffer<uint8_t> expanded(device_, pages * page_bytes);
  WriteExpandedParams write;
  write.pool = chunk.pool.data();
  write.pages = chunk.device_pages.data();
  write.ropes = {ropes.dtype, ropes.offset, shape.d_rope * DTypeSize(ropes.dtype), ropes.stride, 0};
  write.keys = keys.data();
  write.values = values.data();
  write.expanded = expanded.data();
  write.dtype = options_.weights;
  write.tokens = tokens;
  write.padded = padded;
  write.heads_kv = static_cast<int32_t>(shape.heads_kv);
  write.d_head = static_cast<int32_t>(shape.d_head);
  write.d_rope = static_cast<int32_t>(shape.d_rope);
  LaunchWriteExpanded(device_.stream(), kBlocks, write);
  device_.Synchronize("expanding keys and values");

  Sequence sequence = chunk.sequence;
  std::vector<int64_t> offsets;
  for (int64_t page = 0; page < pages; ++page) {
    offsets.push_back(page * page_bytes);
  }
  const Buffer<int64_t> table(device_, offsets);
  sequence.pool = expanded.data();
  sequence.pages = table.data();
  HeadAttention attention;
  attention.heads_kv = shape.heads_kv;
  attention.group = shape.group();
  attention.content = {options_.weights, 0, 64 * key_width * size, key_width * size, 0};
  attention.rope = attention.content;
  attention.rope.offset = shape.d_head * size;
  attention.value = {options_.weights, shape.heads_kv * 64 * key_width * size,
                     64 * shape.d_head * size, shape.d_head * size, 0};
  attention.content_width = attention.value_width = shape.d_head;
  attention.rope_width = shape.d_rope;
  attention.scale = model_.global_scale;
  attention.query = query.data();
  attention.rope_query = rope.data();
  Buffer<float> output(device_, chunk.rows() * shape.heads_q * shape.d_head);
  attention.output = output.data();
  tuned_ = Attend(device_, sequence, attention);
  return output;
}

std::vector<float> LayerRunner::Run(const GoldenCase& c, const std::vector<int64_t>& ends) {
  Check(!ends.empty() && ends.back() == c.rows, "chunks cover the case");
  const kernels::LocalShape local{model_.shape.heads_q, model_.shape.heads_kv, model_.shape.d_head};
  const int64_t page_bytes = layer_.global ? kernels::PageBytes(model_.shape, options_.cache)
                                           : kernels::PageBytes(local, options_.cache);
  std::vector<int64_t> pages;  // backwards, so that they are not where they would be by chance
  for (int64_t page = (c.rows + 63) / 64; page > 0; --page) {
    pages.push_back((page - 1) * page_bytes);
  }
  Buffer<uint8_t> pool(device_, static_cast<int64_t>(pages.size()) * page_bytes);
  const std::vector<double>& theta = layer_.global ? model_.global_theta : model_.local_theta;
  std::vector<float> result;
  int64_t begin = 0;
  for (int64_t end : ends) {
    std::vector<int64_t> page_of_row;
    std::vector<int32_t> slot_of_row;
    for (int64_t row = begin; row < end; ++row) {
      page_of_row.push_back(pages[static_cast<size_t>(row / 64)]);
      slot_of_row.push_back(static_cast<int32_t>(row % 64));
    }
    Chunk chunk{begin,
                end,
                pool,
                pages,
                Buffer<int64_t>(device_, pages),
                Buffer<int64_t>(device_, page_of_row),
                Buffer<int32_t>(device_, slot_of_row),
                Buffer<float>(device_, Angles(theta, begin, end, std::cos)),
                Buffer<float>(device_, Angles(theta, begin, end, std::sin)),
                {}};
    chunk.sequence.pool = pool.data();
    chunk.sequence.pages = chunk.device_pages.data();
    chunk.sequence.rows = RowsOf(begin, end, c.prefix, layer_.global ? 0 : model_.window);
    const Buffer<float> x(device_, std::vector<float>(c.x.begin() + begin * model_.d_model,
                                                      c.x.begin() + end * model_.d_model));
    const Buffer<float> mixed = layer_.global ? Global(x, chunk) : Local(x, chunk);
    const std::vector<float> y = Project(mixed, chunk.rows(), "W_O").Get();
    result.insert(result.end(), y.begin(), y.end());
    begin = end;
  }
  return result;
}

}  // namespace attnd::gpu
