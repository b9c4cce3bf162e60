// Messages above the limit, on their way in and on their way out.
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

using testing::HasSubstr;

TEST(MessageSizeTest, AMessageOf300MiBIsRefusedByGrpc) {
  ReadyServer server(TinyFlags());
  Wire wire(server.grpc());
  const std::string session = wire.Create();
  v1::PrefillRequest request = PrefillOf(session, kTinyLocal, 0, TinyRows(1, 1));
  request.mutable_hidden()->mutable_data()->resize(size_t{300} << 20);
  v1::PrefillResponse response;
  // gRPC's transport receives the whole message before it looks at the size; it may not keep it.
  for (int round = 0; round < 5; ++round) {
    const Outcome outcome = wire.Prefill(request, &response);
    EXPECT_EQ(outcome.text(), "RESOURCE_EXHAUSTED") << "gRPC's own statuses carry no reason";
    EXPECT_THAT(outcome.message, HasSubstr("larger than max"));
    const int64_t resident = server.RssBytes();
    std::printf("after message %d of 300 MiB: %ld MiB resident\n", round + 1, resident >> 20);
    EXPECT_LT(resident, int64_t{600} << 20) << "never two of them, however many come";
  }
  EXPECT_EQ(wire.Prefill(session, kTinyLocal, 0, TinyRows(1, 1)).size(), 64u);
}

// A prefix of 256 rows answers 64 KiB and a little, more than a message may have.
class LargeAnswerTest : public testing::Test {
 protected:
  ReadyServer server_{TinyFlags({"--max_message_bytes=65536"})};
  Wire wire_{server_.grpc()};
  const std::vector<float> values_ = RandomRows(1, kTinyMaxLength, kTinyWidth);

  v1::Tensor Rows(int64_t begin, int64_t count) {
    return MakeTensor(RowsOf(values_, kTinyWidth, begin, count), kTinyWidth);
  }
};

TEST_F(LargeAnswerTest, AUnaryAnswerThatIsTooLargeAppendsNothing) {
  const std::string session = wire_.Create(kTinyMaxLength);
  EXPECT_EQ(wire_.Prefill(session, kTinyGlobal, 0, Rows(0, 100)).size(), 0u);
  v1::PrefillRequest request = PrefillOf(session, kTinyGlobal, 100, Rows(100, 156));
  v1::PrefillResponse response;
  const Outcome outcome = wire_.Prefill(request, &response);
  EXPECT_EQ(outcome.text(), "RESOURCE_EXHAUSTED MESSAGE_TOO_LARGE");
  EXPECT_THAT(outcome.message, HasSubstr("Steps"));
  EXPECT_EQ(wire_.Length(session, kTinyGlobal), 100);
  request.set_output_rows(v1::OUTPUT_ROWS_LAST);
  EXPECT_TRUE(wire_.Prefill(request, &response).ok()) << "what is asked for fits";
  EXPECT_EQ(response.output().shape(0), 1);
  request.set_rewind(true);
  request.set_output_rows(v1::OUTPUT_ROWS_ALL);
  request.set_output_dtype(v1::DTYPE_BF16);
  EXPECT_TRUE(wire_.Prefill(request, &response).ok()) << "so does half the width";
  EXPECT_EQ(response.output().shape(0), kTinyMaxLength);
}

TEST_F(LargeAnswerTest, StepsAnswersInParts) {
  ReadyServer wide(TinyFlags());
  Wire other(wide.grpc());
  const std::string whole = other.Create(kTinyMaxLength);
  const std::vector<float> expected = other.Prefill(whole, kTinyGlobal, 0, Rows(0, kTinyMaxLength));

  const std::string session = wire_.Create(kTinyMaxLength);
  wire_.Prefill(session, kTinyGlobal, 0, Rows(0, 100));
  StepsCall steps(wire_);
  ASSERT_TRUE(steps.Write(StepOf(9, PrefillOf(session, kTinyGlobal, 100, Rows(100, 156)))));
  std::vector<float> output;
  int parts = 0;
  for (bool more = true; more; ++parts) {
    const v1::StepResponse response = steps.Next();
    ASSERT_EQ(StatusText(response.status()), "OK") << response.status().message();
    EXPECT_EQ(response.step_id(), 9u);
    EXPECT_LE(response.ByteSizeLong(), 65536u);
    EXPECT_EQ(response.prefill().output_position() * kTinyWidth,
              static_cast<int64_t>(output.size()));
    EXPECT_EQ(response.prefill().length(), kTinyMaxLength);
    const std::vector<float> rows = Values(response.prefill().output());
    output.insert(output.end(), rows.begin(), rows.end());
    more = response.more();
  }
  EXPECT_GE(parts, 2);
  ASSERT_EQ(output.size(), expected.size());
  for (size_t i = 0; i < output.size(); ++i) {
    ASSERT_NEAR(output[i], expected[i], 1e-5);
  }
  steps.HalfClose();
  EXPECT_TRUE(steps.Finish().ok());
}

TEST_F(LargeAnswerTest, ARequestThatIsTooLargeAlsoEndsTheStream) {
  StepsCall steps(wire_);
  v1::PrefillRequest request = PrefillOf(wire_.Create(), kTinyLocal, 0, Rows(0, 1));
  request.mutable_hidden()->mutable_data()->resize(70000);
  steps.Write(StepOf(1, request));
  v1::StepResponse response;
  EXPECT_FALSE(steps.Read(&response));
  EXPECT_EQ(steps.Finish().text(), "RESOURCE_EXHAUSTED");
}

}  // namespace
}  // namespace attnd
