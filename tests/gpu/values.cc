#include "tests/gpu/values.h"

#include <algorithm>
#include <thread>

#include "kernels/convert.h"

namespace attnd::gpu {
namespace {

// work(0) to work(n - 1) on all cores: float64 takes longer than the card.
template <typename F>
void InParallel(int64_t n, const F& work) {
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t share = std::max<int64_t>(8, (n + cores - 1) / cores);
  std::vector<std::thread> threads;
  for (int64_t begin = share; begin < n; begin += share) {
    threads.emplace_back([&work, begin, end = std::min(n, begin + share)] {
      for (int64_t i = begin; i < end; ++i) {
        work(i);
      }
    });
  }
  for (int64_t i = 0; i < std::min(n, share); ++i) {
    work(i);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace

std::vector<float> Stored(DType dtype, const std::vector<float>& values, int64_t width) {
  const int64_t n = static_cast<int64_t>(values.size());
  std::vector<uint8_t> bytes(static_cast<size_t>(n * DTypeSize(dtype)));
  std::vector<float> stored(values.size());
  if (dtype == DType::kFp8E4M3) {
    for (int64_t row = 0; row < n; row += width) {
      float scale = 0;
      kernels::QuantizeE4M3(values.data() + row, width, bytes.data() + row, &scale);
      for (int64_t i = row; i < row + width; ++i) {
        const size_t at = static_cast<size_t>(i);
        stored[at] = kernels::WidenE4M3(bytes[at]) * scale;
      }
    }
    return stored;
  }
  kernels::FromFloat(dtype, values.data(), n, bytes.data());
  kernels::ToFloat(dtype, bytes.data(), n, stored.data());
  return stored;
}

std::vector<double> Wanted(
    const RaggedBatch& batch, const WantedShape& shape, const std::vector<float>& query,
    const std::vector<float>& rope_query,
    const std::function<HeadValues(int64_t sequence, int64_t head)>& head_of) {
  const int64_t heads = shape.heads_kv * shape.group;
  const int64_t width = shape.content_width + shape.rope_width;
  std::vector<double> want(static_cast<size_t>(batch.rows() * heads * shape.value_width));
  int64_t sequence = -1;
  std::vector<HeadValues> values;
  for (int64_t row = 0; row < batch.rows(); ++row) {
    if (batch.SequenceOf(row) != sequence) {
      sequence = batch.SequenceOf(row);
      values.clear();
      for (int64_t h = 0; h < shape.heads_kv; ++h) {
        values.push_back(head_of(sequence, h));
      }
    }
    InParallel(heads, [&](int64_t h) {
      const int64_t at = row * heads + h;
      const float* content = query.data() + at * shape.content_width;
      const float* rope = rope_query.data() + at * shape.rope_width;
      std::vector<double> both(content, content + shape.content_width);
      both.insert(both.end(), rope, rope + shape.rope_width);
      const HeadValues& of = values[static_cast<size_t>(h / shape.group)];
      kernels::ReferenceHead head;
      head.key_width = width;
      head.value_width = shape.value_width;
      head.scale = shape.scale;
      head.query = both.data();
      head.key = of.key.data();
      head.key_stride = width;
      head.value = of.value.data();
      head.value_stride = shape.value_width;
      const std::vector<double> output = kernels::ReferenceAttend(head, 0, batch.Sees(row));
      std::copy(output.begin(), output.end(), want.begin() + at * shape.value_width);
    });
  }
  return want;
}

std::vector<float> EachAlone(const RaggedBatch& batch,
                             const std::function<std::vector<float>(int64_t only)>& run) {
  std::vector<float> rows;
  int64_t row = 0;
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    const std::vector<float> own = run(s);
    const int64_t width = static_cast<int64_t>(own.size()) / batch.rows();
    for (; row < batch.rows() && batch.SequenceOf(row) == s; ++row) {
      rows.insert(rows.end(), own.begin() + row * width, own.begin() + (row + 1) * width);
    }
  }
  return rows;
}

std::vector<Intervals> RaggedSequences(Random& random, int64_t count, int64_t rows, int64_t keys) {
  std::vector<Intervals> sequences;
  const int64_t edges[] = {0, 1, 63, 64, 65, 255, 256, 257};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t own = 1 + random.Below(rows);
    const int64_t begin =
        i % 2 == 0 ? std::min(edges[random.Below(8)], keys) : random.Below(keys + 1);
    const int64_t window = i % 3 == 0 ? 0 : 1 + random.Below(keys);
    sequences.push_back(RowsOf(begin, begin + own, 0, window));
  }
  sequences.push_back(RowsOf(0, rows, rows, 1));  // a prefix that all of it sees
  sequences.push_back({});
  sequences.push_back({{0, 0}});  // sees nothing
  // Nothing, then a few keys, then nothing again far on.
  sequences.push_back({{0, 0}, {5, 70}, {keys, keys}});
  return sequences;
}

}  // namespace attnd::gpu
