// Answers as bytes: what the generated parser reads from them is the message meant, and float32
// rows are not copied.
#include "server/raw_answer.h"

#include <cstring>

#include "core/error.h"
#include "google/protobuf/util/message_differencer.h"
#include "kernels/convert.h"
#include "server/status_map.h"
#include "server/validate.h"
#include "tests/server/wire_bytes.h"

namespace attnd::server {
namespace {

using google::protobuf::util::MessageDifferencer;

constexpr DType kDtypes[] = {DType::kF32, DType::kBF16, DType::kF16};
constexpr int64_t kWidth = 3;

std::vector<float> Rows(int64_t rows) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * kWidth; ++i) {
    values.push_back(static_cast<float>(i % 251 - 125) / 64.0F + 0.001F);
  }
  return values;
}

Step PrefillStep(int64_t rows) {
  Step step;
  step.kind = StepKind::kPrefill;
  step.sequences.emplace_back().length = 900;
  step.output = Rows(rows);
  step.output_position = 300;
  step.timing = {11, 22'000'000'000, 33};
  return step;
}

Step DecodeStep(int64_t sequences) {
  Step step = PrefillStep(sequences);
  step.kind = StepKind::kDecode;
  step.sequences.clear();
  for (int64_t i = 0; i < sequences; ++i) {
    SequenceStep& sequence = step.sequences.emplace_back();
    sequence.length = 100 * i;
    if (i % 3 == 1) {
      sequence.status = MakeRetryableError(Reason::kCacheFull, "full", 100);
    }
  }
  return step;
}

// The rows of `part` as the generated messages have them.
void SetTensor(const std::vector<float>& values, DType dtype, RowRange part, v1::Tensor* tensor) {
  tensor->set_dtype(WireDtype(dtype));
  tensor->add_shape(part.count);
  tensor->add_shape(kWidth);
  tensor->mutable_data()->resize(static_cast<size_t>(part.count * kWidth * DTypeSize(dtype)));
  kernels::FromFloat(dtype, values.data() + part.begin * kWidth, part.count * kWidth,
                     tensor->mutable_data()->data());
}

v1::PrefillResponse ExpectedPrefill(int64_t rows, DType dtype, RowRange part) {
  v1::PrefillResponse response;
  response.set_output_position(300 + part.begin);
  response.set_length(900);
  response.mutable_timing()->set_queue_ns(11);
  response.mutable_timing()->set_compute_ns(22'000'000'000);
  response.mutable_timing()->set_batch_rows(33);
  SetTensor(Rows(rows), dtype, part, response.mutable_output());
  return response;
}

v1::DecodeResponse ExpectedDecode(int64_t sequences, DType dtype) {
  const v1::PrefillResponse same = ExpectedPrefill(sequences, dtype, {0, sequences});
  v1::DecodeResponse response;
  for (int64_t i = 0; i < sequences; ++i) {
    v1::SequenceResult* result = response.add_results();
    result->set_length(100 * i);
    result->mutable_status();
    if (i % 3 == 1) {
      result->mutable_status()->set_code(8);
      result->mutable_status()->set_message("full");
      result->mutable_status()->set_reason("CACHE_FULL");
      result->mutable_status()->mutable_retry_after()->set_nanos(100'000'000);
    }
  }
  *response.mutable_timing() = same.timing();
  *response.mutable_output() = same.output();
  return response;
}

template <typename Message>
void ExpectEquals(const grpc::ByteBuffer& bytes, const Message& expected) {
  const auto message = Parsed<Message>(bytes);
  EXPECT_TRUE(MessageDifferencer::Equals(message, expected)) << message.ShortDebugString() << "\n"
                                                             << expected.ShortDebugString();
  EXPECT_EQ(bytes.Length(), expected.ByteSizeLong());
}

TEST(RawAnswerTest, Prefills) {
  for (DType dtype : kDtypes) {
    for (int64_t rows : {0, 1, 2, 50, 5000}) {
      Step step = PrefillStep(rows);
      const AnswerRows taken = TakeRows(&step, kWidth, dtype);
      EXPECT_TRUE(step.output.empty());
      ExpectEquals(EncodePrefill(step, taken), ExpectedPrefill(rows, dtype, {0, rows}));
    }
  }
}

TEST(RawAnswerTest, Decodes) {
  for (DType dtype : kDtypes) {
    for (int64_t sequences : {1, 2, 3, 200}) {
      Step step = DecodeStep(sequences);
      const AnswerRows taken = TakeRows(&step, kWidth, dtype);
      ExpectEquals(EncodeDecode(step, taken), ExpectedDecode(sequences, dtype));
      v1::StepResponse expected;
      expected.set_step_id(7);
      expected.mutable_status();
      *expected.mutable_decode() = ExpectedDecode(sequences, dtype);
      const StreamAnswer answer = EncodeStreamDecode(7, step, taken);
      EXPECT_FALSE(answer.more);
      ExpectEquals(answer.bytes, expected);
    }
  }
}

TEST(RawAnswerTest, PartsOfAPrefillOnAStream) {
  for (DType dtype : kDtypes) {
    for (RowRange part : {RowRange{0, 10}, RowRange{0, 4}, RowRange{4, 4}, RowRange{8, 2}}) {
      Step step = PrefillStep(10);
      const AnswerRows taken = TakeRows(&step, kWidth, dtype);
      v1::StepResponse expected;
      expected.set_step_id(1ULL << 63);
      expected.mutable_status();
      *expected.mutable_prefill() = ExpectedPrefill(10, dtype, part);
      expected.set_more(part.begin + part.count < 10);
      const StreamAnswer answer = EncodePrefillPart(1ULL << 63, step, taken, part);
      EXPECT_EQ(answer.more, expected.more());
      ExpectEquals(answer.bytes, expected);
    }
    Step none = PrefillStep(0);
    v1::StepResponse expected;
    expected.mutable_status();
    *expected.mutable_prefill() = ExpectedPrefill(0, dtype, {});
    ExpectEquals(EncodePrefillPart(0, none, TakeRows(&none, kWidth, dtype), {}).bytes, expected);
  }
}

TEST(RawAnswerTest, Failures) {
  const absl::Status status = MakeRetryableError(Reason::kQueueFull, "full", 1500);
  v1::StepResponse expected;
  expected.set_step_id(9);
  ToWireStatus(status, expected.mutable_status());
  const StreamAnswer answer = EncodeFailure(9, status);
  EXPECT_FALSE(answer.more);
  ExpectEquals(answer.bytes, expected);
}

TEST(RawAnswerTest, Float32RowsAreBorrowed) {
  Step step = PrefillStep(1000);
  const auto* rows = reinterpret_cast<const uint8_t*>(step.output.data());
  grpc::ByteBuffer answer = EncodePrefill(step, TakeRows(&step, kWidth, DType::kF32));
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(answer.Dump(&slices).ok());
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slices[1].begin(), rows);
  // The slices alone keep them.
  answer.Clear();
  const std::vector<float> expected = Rows(1000);
  ASSERT_EQ(slices[1].size(), expected.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(slices[1].begin(), expected.data(), slices[1].size()), 0);
}

TEST(RawAnswerTest, BeyondF16IsInfinity) {
  Step step = PrefillStep(1);
  step.output = {1e6F, -1e6F, 1.0F};
  const auto response =
      Parsed<v1::PrefillResponse>(EncodePrefill(step, TakeRows(&step, kWidth, DType::kF16)));
  EXPECT_EQ(response.output().data(), std::string("\x00\x7c\x00\xfc\x00\x3c", 6));
}

}  // namespace
}  // namespace attnd::server
