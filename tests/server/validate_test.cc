// What can be said of a request from the request and the model alone.
#include "server/validate.h"

#include <limits>

#include "core/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_engine.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

LayerPlan Plan() { return MakeLayerPlan(TinyConfig(8, 2)); }

std::string ReasonText(const absl::Status& status) {
  return status.ok() ? "OK" : ReasonName(ReasonOf(status).value_or(Reason::kInternal));
}

v1::Tensor Tensor(v1::Dtype dtype, const std::vector<int64_t>& shape, size_t bytes) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  tensor.set_data(std::string(bytes, '\0'));
  return tensor;
}

absl::StatusOr<int64_t> HiddenRows(const LayerPlan& plan, const v1::Tensor& tensor) {
  return CheckHidden(plan, tensor, static_cast<int64_t>(tensor.data().size()));
}

TEST(ValidateTest, Layers) {
  const LayerPlan plan = Plan();
  EXPECT_TRUE(CheckLayer(plan, 0).ok());
  EXPECT_TRUE(CheckLayer(plan, static_cast<uint32_t>(plan.num_layers() - 1)).ok());
  for (uint32_t layer : {static_cast<uint32_t>(plan.num_layers()), 0xFFFFFFFFU}) {
    EXPECT_EQ(ReasonText(CheckLayer(plan, layer)), "BAD_LAYER");
  }
}

TEST(ValidateTest, HiddenOfEveryDtype) {
  const LayerPlan plan = Plan();
  const auto d = static_cast<size_t>(plan.d_model);
  EXPECT_EQ(*HiddenRows(plan, Tensor(v1::DTYPE_F32, {3, plan.d_model}, 12 * d)), 3);
  EXPECT_EQ(*HiddenRows(plan, Tensor(v1::DTYPE_BF16, {1, plan.d_model}, 2 * d)), 1);
  EXPECT_EQ(*HiddenRows(plan, Tensor(v1::DTYPE_F16, {5, plan.d_model}, 10 * d)), 5);
}

TEST(ValidateTest, HiddenThatIsWrong) {
  const LayerPlan plan = Plan();
  const int64_t d = plan.d_model;
  const auto bytes = static_cast<size_t>(4 * d);
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const struct {
    v1::Tensor tensor;
    const char* message;
  } cases[] = {
      {v1::Tensor(), "hidden.dtype is DTYPE_UNSPECIFIED"},
      {Tensor(v1::DTYPE_INT8, {1, d}, bytes), "hidden.dtype is DTYPE_INT8"},
      {Tensor(static_cast<v1::Dtype>(77), {1, d}, bytes), "hidden.dtype is 77"},
      {Tensor(v1::DTYPE_F32, {}, bytes), "hidden.shape is []"},
      {Tensor(v1::DTYPE_F32, {d}, bytes), "expected [n, "},
      {Tensor(v1::DTYPE_F32, {1, 1, d}, bytes), "hidden.shape is [1, 1, "},
      {Tensor(v1::DTYPE_F32, {0, d}, 0), "with n >= 1"},
      {Tensor(v1::DTYPE_F32, {-1, d}, bytes), "hidden.shape is [-1, "},
      {Tensor(v1::DTYPE_F32, {1, d + 1}, bytes + 4), "hidden.shape is"},
      {Tensor(v1::DTYPE_F32, {1, d}, bytes - 1), "hidden.data has"},
      {Tensor(v1::DTYPE_F32, {1, d}, bytes + 1), "hidden.data has"},
      {Tensor(v1::DTYPE_BF16, {1, d}, bytes), "of bf16"},
      // Products that wrap around to the number of bytes that are there.
      {Tensor(v1::DTYPE_F32, {kHuge, d}, bytes), "hidden.data has"},
      {Tensor(v1::DTYPE_F32, {int64_t{1} << 62, d}, 0), "hidden.data has 0 bytes"},
      {Tensor(v1::DTYPE_F32, std::vector<int64_t>(10'000, 1), bytes), "1, ...]"},
  };
  for (const auto& c : cases) {
    const absl::Status status = HiddenRows(plan, c.tensor).status();
    EXPECT_EQ(ReasonText(status), "BAD_TENSOR") << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    EXPECT_LT(status.message().size(), 300U);
  }
}

TEST(ValidateTest, OutputDtypeFollowsHidden) {
  const v1::Tensor hidden = Tensor(v1::DTYPE_BF16, {}, 0);
  EXPECT_EQ(*CheckOutputDtype(v1::DTYPE_UNSPECIFIED, hidden), DType::kBF16);
  EXPECT_EQ(*CheckOutputDtype(v1::DTYPE_F32, hidden), DType::kF32);
  EXPECT_EQ(*CheckOutputDtype(v1::DTYPE_F16, hidden), DType::kF16);
  for (int dtype : {4, 5, 99}) {
    EXPECT_EQ(ReasonText(CheckOutputDtype(static_cast<v1::Dtype>(dtype), hidden).status()),
              "BAD_TENSOR");
  }
}

TEST(ValidateTest, OutputRowsOfTheEnum) {
  EXPECT_EQ(*CheckOutputRows(v1::OUTPUT_ROWS_UNSPECIFIED), OutputRows::kAll);
  EXPECT_EQ(*CheckOutputRows(v1::OUTPUT_ROWS_ALL), OutputRows::kAll);
  EXPECT_EQ(*CheckOutputRows(v1::OUTPUT_ROWS_LAST), OutputRows::kLast);
  EXPECT_EQ(*CheckOutputRows(v1::OUTPUT_ROWS_NONE), OutputRows::kNone);
  EXPECT_EQ(ReasonText(CheckOutputRows(static_cast<v1::OutputRows>(4)).status()), "BAD_ARGUMENT");
}

TEST(ValidateTest, Positions) {
  const LayerPlan plan = Plan();
  const int64_t end = plan.max_seq_len;
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(CheckPositions(plan, std::nullopt, 0, 1, 0).ok());
  EXPECT_TRUE(CheckPositions(plan, std::nullopt, 0, end, 5).ok());
  EXPECT_TRUE(CheckPositions(plan, std::nullopt, end - 1, 1, 0).ok());
  EXPECT_EQ(ReasonText(CheckPositions(plan, std::nullopt, -1, 1, 0)), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonText(CheckPositions(plan, std::nullopt, 0, 1, -1)), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonText(CheckPositions(plan, std::nullopt, end, 1, 0)), "PAST_MAX_SEQ_LEN");
  EXPECT_EQ(ReasonText(CheckPositions(plan, std::nullopt, end - 1, 2, 0)), "PAST_MAX_SEQ_LEN");
  EXPECT_EQ(ReasonText(CheckPositions(plan, std::nullopt, kHuge, 1, 0)), "PAST_MAX_SEQ_LEN");
  EXPECT_EQ(ReasonText(CheckPositions(plan, std::nullopt, kHuge, kHuge, 0)), "PAST_MAX_SEQ_LEN");
  EXPECT_THAT(std::string(CheckPositions(plan, 3, -7, 1, 0).message()),
              HasSubstr("sequences[3].position is -7"));
}

v1::DecodeRequest Batch(const std::vector<std::pair<std::string, uint32_t>>& sequences) {
  v1::DecodeRequest request;
  for (const auto& [id, tokens] : sequences) {
    v1::SequenceStep* sequence = request.add_sequences();
    sequence->set_session_id(id);
    sequence->set_num_tokens(tokens);
  }
  return request;
}

TEST(ValidateTest, Batches) {
  EXPECT_TRUE(CheckBatch(Batch({{"a", 0}}), 1).ok());
  EXPECT_TRUE(CheckBatch(Batch({{"a", 0}, {"b", 3}, {"c", 1}}), 5).ok());
  EXPECT_EQ(ReasonText(CheckBatch(Batch({}), 0)), "BAD_BATCH");
  EXPECT_EQ(ReasonText(CheckBatch(Batch({{"a", 1}, {"b", 1}, {"a", 1}}), 3)), "BAD_BATCH");
  EXPECT_EQ(ReasonText(CheckBatch(Batch({{"a", 1}, {"b", 1}}), 3)), "BAD_BATCH");
  EXPECT_EQ(ReasonText(CheckBatch(Batch({{"a", 0xFFFFFFFF}, {"b", 0xFFFFFFFF}}), 0xFFFFFFFE)),
            "BAD_BATCH");
}

google::protobuf::Duration Duration(int64_t seconds, int32_t nanos) {
  google::protobuf::Duration duration;
  duration.set_seconds(seconds);
  duration.set_nanos(nanos);
  return duration;
}

TEST(ValidateTest, Durations) {
  EXPECT_EQ(*CheckDuration("timeout", Duration(0, 0)), 0);
  EXPECT_EQ(*CheckDuration("timeout", Duration(2, 500)), 2'000'000'500);
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_GT(*CheckDuration("timeout", Duration(kHuge, 999'999'999)), 0);
  EXPECT_EQ(ReasonText(CheckDuration("timeout", Duration(-1, 0)).status()), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonText(CheckDuration("timeout", Duration(0, -1)).status()), "BAD_ARGUMENT");
  EXPECT_EQ(ReasonText(CheckDuration("timeout", Duration(0, 1'000'000'000)).status()),
            "BAD_ARGUMENT");
}

}  // namespace
}  // namespace attnd::server
