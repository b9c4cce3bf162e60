// A client that did not get its answer repeats the step: the same answer, bit for bit, and what
// follows is as if it had been sent once.
#include "tests/integration/tiny_server.h"
#include "tests/support/golden.h"

namespace attnd {
namespace {

constexpr int64_t kWidth = 128;  // of golden model small_shape: window 130, max_seq_len 1024

class RepeatedStepsTest : public testing::TestWithParam<uint32_t> {
 protected:
  v1::Tensor Rows(uint64_t seed, int64_t rows) {
    return MakeTensor(RandomRows(seed, rows, kWidth), kWidth);
  }

  const std::string dir_ = GoldenDir() + "/small_shape";
  ReadyServer server_{{"--model=" + dir_ + "/model.yaml",
                       "--weights=" + dir_ + "/model.safetensors", "--kv_cache_bytes=64MiB",
                       "--prefill_chunk_rows=100"}};
  Wire wire_{server_.grpc()};
};

TEST_P(RepeatedStepsTest, ARepeatedPrefillPastTheWindowAdvancesOnceWithTheSameAnswer) {
  const uint32_t layer = GetParam();
  const std::string once = wire_.Create();
  const std::string twice = wire_.Create();
  for (const std::string& session : {once, twice}) {
    wire_.Prefill(session, layer, 0, Rows(1, 200));
    wire_.Prefill(session, layer, 200, Rows(2, 57));
  }
  const std::vector<float> first = wire_.Prefill(once, layer, 257, Rows(3, 512));
  EXPECT_EQ(wire_.Prefill(twice, layer, 257, Rows(3, 512)), first);
  for (int repeat = 0; repeat < 3; ++repeat) {
    EXPECT_EQ(wire_.Prefill(twice, layer, 257, Rows(3, 512), true), first);
    EXPECT_EQ(wire_.Length(twice, static_cast<int>(layer)), 769);
  }
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(wire_.Decode(layer, {{twice, 769 + i}}, Rows(10 + i, 1)),
              wire_.Decode(layer, {{once, 769 + i}}, Rows(10 + i, 1)));
  }
}

TEST_P(RepeatedStepsTest, ARepeatedCallThatCompletesAPrefixAdvancesOnceWithTheSameAnswer) {
  const uint32_t layer = GetParam();
  const std::string once = wire_.Create(300);
  const std::string twice = wire_.Create(300);
  for (const std::string& session : {once, twice}) {
    EXPECT_TRUE(wire_.Prefill(session, layer, 0, Rows(1, 150)).empty());
    EXPECT_TRUE(wire_.Prefill(session, layer, 150, Rows(2, 50)).empty());
  }
  const std::vector<float> first = wire_.Prefill(once, layer, 200, Rows(3, 180));
  ASSERT_EQ(first.size(), 380u * kWidth) << "the rows held back are answered too";
  EXPECT_EQ(wire_.Prefill(twice, layer, 200, Rows(3, 180)), first);
  EXPECT_EQ(wire_.Prefill(twice, layer, 200, Rows(3, 180), true), first);
  v1::PrefillRequest request = PrefillOf(twice, layer, 200, Rows(3, 180));
  request.set_rewind(true);
  v1::PrefillResponse response;
  ASSERT_TRUE(wire_.Prefill(request, &response).ok());
  EXPECT_EQ(response.output_position(), 0);
  EXPECT_EQ(Values(response.output()), first);
  EXPECT_EQ(wire_.Decode(layer, {{twice, 380, 3}}, Rows(4, 3)),
            wire_.Decode(layer, {{once, 380, 3}}, Rows(4, 3)));
}

TEST_P(RepeatedStepsTest, ARepeatedDecodeAdvancesOnceWithTheSameAnswer) {
  const uint32_t layer = GetParam();
  const std::string session = wire_.Create();
  wire_.Prefill(session, layer, 0, Rows(1, 500));
  const std::vector<float> first = wire_.Decode(layer, {{session, 500}}, Rows(2, 1));
  v1::DecodeRequest request = DecodeOf(layer, {{session, 500}}, Rows(2, 1));
  request.mutable_sequences(0)->set_rewind(true);
  v1::DecodeResponse response;
  for (int repeat = 0; repeat < 3; ++repeat) {
    ASSERT_TRUE(wire_.Decode(request, &response).ok());
    EXPECT_EQ(Values(response.output()), first);
    EXPECT_EQ(response.results(0).length(), 501);
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, RepeatedStepsTest, testing::Values(0, 1),
                         [](const auto& instance) {
                           return instance.param == 0 ? "Local" : "Global";
                         });

}  // namespace
}  // namespace attnd
