// Bytes to steps and back, every dtype, odd shapes.
#include "server/wire.h"

#include <cstring>
#include <limits>

#include "core/error.h"
#include "gtest/gtest.h"
#include "kernels/convert.h"
#include "server/validate.h"
#include "tests/support/test_engine.h"

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

TEST(WireTest, RoundTripsEveryDtypeAndShape) {
  for (DType dtype : kDtypes) {
    for (int64_t rows : {1, 2, 3, 17}) {
      for (int64_t d_model : {1, 3, 50, 64}) {
        const std::vector<float> values = Exact(rows * d_model);
        v1::Tensor tensor;
        WriteTensor(values, 0, rows, d_model, dtype, &tensor);
        EXPECT_EQ(tensor.dtype(), WireDtype(dtype));
        EXPECT_EQ(tensor.shape(0), rows);
        EXPECT_EQ(tensor.shape(1), d_model);
        EXPECT_EQ(static_cast<int64_t>(tensor.data().size()), rows * d_model * DTypeSize(dtype));
        Step step = StepOf({rows});
        ReadHidden(tensor, &step);
        EXPECT_EQ(step.hidden, values);
        EXPECT_TRUE(step.sequences[0].status.ok());
      }
    }
  }
}

TEST(WireTest, TheBytesAreLittleEndianRowMajor) {
  v1::Tensor tensor;
  WriteTensor({1.0F, -2.0F}, 0, 1, 2, DType::kF32, &tensor);
  EXPECT_EQ(tensor.data(), std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8));
  v1::Tensor half;
  WriteTensor({1.0F, -2.0F}, 0, 1, 2, DType::kBF16, &half);
  EXPECT_EQ(half.data(), std::string("\x80\x3f\x00\xc0", 4));
}

TEST(WireTest, APartOfTheRows) {
  v1::Tensor tensor;
  WriteTensor(Exact(10), 2, 2, 2, DType::kF32, &tensor);
  float got[4];
  std::memcpy(got, tensor.data().data(), sizeof(got));
  const std::vector<float> all = Exact(10);
  EXPECT_EQ(std::vector<float>(got, got + 4), std::vector<float>(all.begin() + 4, all.begin() + 8));
}

TEST(WireTest, NoRowsIsATensorWithoutData) {
  v1::Tensor tensor;
  WriteTensor({}, 0, 0, 64, DType::kF16, &tensor);
  EXPECT_EQ(tensor.shape(0), 0);
  EXPECT_EQ(tensor.shape(1), 64);
  EXPECT_EQ(tensor.data(), "");
}

// NaN and both infinities, in each dtype, anywhere in a sequence's rows: that sequence alone.
TEST(WireTest, OnlyTheSequenceWithTheNanFails) {
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};
  for (DType dtype : kDtypes) {
    for (float bad : kBad) {
      for (size_t at : {size_t{3}, size_t{8}}) {  // first and last element of the second sequence
        std::vector<float> values = Exact(12);
        values[at] = bad;
        v1::Tensor tensor;
        WriteTensor(values, 0, 4, 3, dtype, &tensor);
        Step step = StepOf({1, 2, 1});
        ReadHidden(tensor, &step);
        EXPECT_TRUE(step.sequences[0].status.ok());
        EXPECT_EQ(ReasonOf(step.sequences[1].status), Reason::kNotFinite);
        EXPECT_TRUE(step.sequences[2].status.ok());
      }
    }
  }
}

TEST(WireTest, AnEarlierFailureIsKept) {
  v1::Tensor tensor;
  WriteTensor({std::numeric_limits<float>::quiet_NaN()}, 0, 1, 1, DType::kF32, &tensor);
  Step step = StepOf({1});
  step.sequences[0].status = MakeError(Reason::kSessionUnknown, "gone");
  ReadHidden(tensor, &step);
  EXPECT_EQ(ReasonOf(step.sequences[0].status), Reason::kSessionUnknown);
}

TEST(WireTest, PrefillAnswers) {
  Step step = StepOf({2});
  step.kind = StepKind::kPrefill;
  step.sequences[0].length = 9;
  step.output = Exact(12);
  step.output_position = 6;
  step.timing = {11, 22, 33};
  v1::PrefillResponse all;
  WritePrefill(step, 4, DType::kF32, &all);
  EXPECT_EQ(all.output_position(), 6);
  EXPECT_EQ(all.length(), 9);
  EXPECT_EQ(all.output().shape(0), 3);
  EXPECT_EQ(all.timing().queue_ns(), 11);
  EXPECT_EQ(all.timing().compute_ns(), 22);
  EXPECT_EQ(all.timing().batch_rows(), 33);
  v1::PrefillResponse part;
  WritePrefillPart(step, 4, DType::kF32, 2, 1, &part);
  EXPECT_EQ(part.output_position(), 8);
  EXPECT_EQ(part.output().data(), all.output().data().substr(32));
}

TEST(WireTest, AnAnswerWithoutRowsHasItsTensorAllTheSame) {
  Step step = StepOf({2});
  step.kind = StepKind::kPrefill;
  step.output_position = 3;
  v1::PrefillResponse response;
  WritePrefill(step, 4, DType::kBF16, &response);
  EXPECT_EQ(response.output_position(), 3);
  ASSERT_TRUE(response.has_output());
  EXPECT_EQ(response.output().shape(0), 0);
  EXPECT_EQ(response.output().dtype(), v1::DTYPE_BF16);
}

TEST(WireTest, DecodeAnswersHaveAResultForEachSequence) {
  Step step = StepOf({1, 1});
  step.sequences[0].length = 5;
  step.sequences[1].status = MakeRetryableError(Reason::kCacheFull, "full", 100);
  step.sequences[1].length = 7;
  step.output = {1, 2, 0, 0};
  v1::DecodeResponse response;
  WriteDecode(step, 2, DType::kF32, &response);
  ASSERT_EQ(response.results_size(), 2);
  EXPECT_EQ(response.results(0).status().code(), 0);
  EXPECT_EQ(response.results(0).length(), 5);
  EXPECT_EQ(response.results(1).status().code(), 8);
  EXPECT_EQ(response.results(1).status().reason(), "CACHE_FULL");
  EXPECT_EQ(response.results(1).status().retry_after().nanos(), 100'000'000);
  EXPECT_EQ(response.results(1).length(), 7);
  EXPECT_EQ(response.output().shape(0), 2);
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
