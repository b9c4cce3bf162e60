// Bytes to steps, every dtype, odd shapes, pieces cut anywhere.
#include "server/wire.h"

#include <limits>

#include "core/error.h"
#include "gtest/gtest.h"
#include "kernels/convert.h"
#include "tests/server/wire_bytes.h"

namespace attnd::server {
namespace {

constexpr DType kDtypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// A step of sequences with these rows, as a Decode builds it.
Step StepOf(const std::vector<int64_t>& rows) {
  Step step;
  step.kind = StepKind::kDecode;
  for (int64_t n : rows) {
    step.sequences.emplace_back().rows = n;
  }
  return step;
}

// Values that every dtype holds exactly.
std::vector<float> Exact(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    values[static_cast<size_t>(i)] = static_cast<float>(i % 251 - 125) / 64.0F;
  }
  return values;
}

// `values` as the data of a tensor of one row.
v1::Tensor Stored(const std::vector<float>& values, DType dtype) {
  v1::Tensor tensor;
  const auto n = static_cast<int64_t>(values.size());
  tensor.mutable_data()->resize(static_cast<size_t>(n * DTypeSize(dtype)));
  kernels::FromFloat(dtype, values.data(), n, tensor.mutable_data()->data());
  return tensor;
}

// Reads `values` in pieces of `piece` bytes into `step`.
void Read(const std::vector<float>& values, DType dtype, int64_t d_model, size_t piece,
          Step* step) {
  TensorBytes bytes;
  SetBytes(Stored(values, dtype), &bytes, piece);
  ReadHidden(bytes, dtype, d_model, step);
}

TEST(WireTest, ReadsEveryDtypeShapeAndCut) {
  for (DType dtype : kDtypes) {
    for (int64_t rows : {1, 2, 3, 17}) {
      for (int64_t d_model : {1, 3, 50, 64}) {
        for (size_t piece : {0, 1, 2, 3, 5, 7, 64, 1000}) {
          const std::vector<float> values = Exact(rows * d_model);
          Step step = StepOf({rows});
          Read(values, dtype, d_model, piece, &step);
          EXPECT_EQ(step.hidden, values);
          EXPECT_TRUE(step.sequences[0].status.ok());
        }
      }
    }
  }
}

// Beyond one block of the conversion, in the slices that gRPC makes of 1 MiB, none of them aligned.
TEST(WireTest, ReadsLongRows) {
  for (DType dtype : kDtypes) {
    for (size_t piece : {65'536, 65'533, 16'384}) {
      const std::vector<float> values = Exact(3 * 50'001);
      Step step = StepOf({1, 2});
      Read(values, dtype, 50'001, piece, &step);
      EXPECT_EQ(step.hidden, values);
    }
  }
}

TEST(WireTest, TheBytesAreLittleEndian) {
  v1::Tensor tensor;
  tensor.set_data(std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8));
  TensorBytes bytes;
  SetBytes(tensor, &bytes);
  Step step = StepOf({1});
  ReadHidden(bytes, DType::kF32, 2, &step);
  EXPECT_EQ(step.hidden, (std::vector<float>{1.0F, -2.0F}));
}

// NaN and both infinities, in each dtype, anywhere in a sequence's rows: that sequence alone.
TEST(WireTest, OnlyTheSequenceWithTheNanFails) {
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};
  for (DType dtype : kDtypes) {
    for (float bad : kBad) {
      for (size_t at : {size_t{3}, size_t{8}}) {  // first and last element of the second sequence
        for (size_t piece : {0, 1, 3, 16}) {
          std::vector<float> values = Exact(12);
          values[at] = bad;
          Step step = StepOf({1, 2, 1});
          Read(values, dtype, 3, piece, &step);
          EXPECT_TRUE(step.sequences[0].status.ok());
          EXPECT_EQ(ReasonOf(step.sequences[1].status), Reason::kNotFinite);
          EXPECT_TRUE(step.sequences[2].status.ok());
        }
      }
    }
  }
}

TEST(WireTest, AnEarlierFailureIsKept) {
  Step step = StepOf({1});
  step.sequences[0].status = MakeError(Reason::kSessionUnknown, "gone");
  Read({std::numeric_limits<float>::quiet_NaN()}, DType::kF32, 1, 0, &step);
  EXPECT_EQ(ReasonOf(step.sequences[0].status), Reason::kSessionUnknown);
}

TEST(WireTest, Sessions) {
  SessionInfo info;
  info.id = "s";
  info.prefix_length = 3;
  info.max_tokens = 100;
  info.layer_lengths = {4, 5};
  info.rewind_floor = 2;
  info.cache_bytes = 6;
  info.reserved_bytes = 7;
  info.create_wall_ns = 1'700'000'000'000'000'123;
  info.expire_wall_ns = 1'700'000'600'000'000'000;
  info.affinity_key = "k";
  v1::Session session;
  WriteSession(info, &session);
  EXPECT_EQ(session.ShortDebugString(),
            "session_id: \"s\" prefix_length: 3 max_tokens: 100 layer_lengths: 4 layer_lengths: 5 "
            "rewind_floor: 2 cache_bytes: 6 reserved_bytes: 7 create_time { seconds: 1700000000 "
            "nanos: 123 } expire_time { seconds: 1700000600 } affinity_key: \"k\"");
}

}  // namespace
}  // namespace attnd::server
