// A Decode of many sessions: what fails the whole call, and what fails one sequence alone.
#include <cmath>

#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

class DecodeErrorsTest : public TinyServerTest {
 protected:
  Outcome Whole(const v1::DecodeRequest& request) {
    v1::DecodeResponse response;
    const Outcome outcome = wire_.Decode(request, &response);
    EXPECT_EQ(wire_.Length(a_, kTinyLocal), 4) << "a whole call that fails appends nothing";
    EXPECT_EQ(wire_.Length(b_, kTinyLocal), 6);
    return outcome;
  }

  // A session with so many rows on the local layer.
  std::string With(int64_t rows) {
    const std::string session = wire_.Create();
    wire_.Prefill(session, kTinyLocal, 0, TinyRows(rows, rows));
    return session;
  }

  std::string a_ = With(4);
  std::string b_ = With(6);
};

TEST_F(DecodeErrorsTest, BadBatches) {
  const v1::Tensor two = TinyRows(1, 2);
  EXPECT_EQ(Whole(DecodeOf(kTinyLocal, {}, two)).text(), "INVALID_ARGUMENT BAD_BATCH");
  EXPECT_EQ(Whole(DecodeOf(kTinyLocal, {{a_, 4}, {a_, 5}}, two)).text(),
            "INVALID_ARGUMENT BAD_BATCH");
  EXPECT_EQ(Whole(DecodeOf(kTinyLocal, {{a_, 4}}, two)).text(), "INVALID_ARGUMENT BAD_BATCH");
  EXPECT_EQ(Whole(DecodeOf(kTinyLocal, {{a_, 4, 2}, {b_, 6}}, two)).text(),
            "INVALID_ARGUMENT BAD_BATCH");
  EXPECT_EQ(Whole(DecodeOf(kTinyLocal, {{a_, 4, 0xffffffff}, {b_, 6, 3}}, two)).text(),
            "INVALID_ARGUMENT BAD_BATCH")
      << "the sum of 32-bit counts does not wrap";
}

TEST_F(DecodeErrorsTest, BadTensorsAndLayers) {
  const std::vector<Part> parts = {{a_, 4}, {b_, 6}};
  v1::DecodeRequest request = DecodeOf(kTinyLocal, parts, TinyRows(1, 2));
  request.mutable_hidden()->mutable_data()->pop_back();
  EXPECT_EQ(Whole(request).text(), "INVALID_ARGUMENT BAD_TENSOR");
  request = DecodeOf(kTinyLocal, parts, TinyRows(1, 2));
  request.clear_hidden();
  EXPECT_EQ(Whole(request).text(), "INVALID_ARGUMENT BAD_TENSOR");
  EXPECT_EQ(Whole(DecodeOf(6, parts, TinyRows(1, 2))).text(), "INVALID_ARGUMENT BAD_LAYER");
  request = DecodeOf(kTinyLocal, parts, TinyRows(1, 2));
  request.set_output_dtype(v1::DTYPE_INT8);
  EXPECT_EQ(Whole(request).text(), "INVALID_ARGUMENT BAD_TENSOR");
}

TEST_F(DecodeErrorsTest, EachSequenceHasItsOwnOutcome) {
  const std::string prefixed = wire_.Create(10);
  wire_.Prefill(prefixed, kTinyLocal, 0, TinyRows(2, 9));
  const std::string capped = wire_.Create(0, 5);
  wire_.Prefill(capped, kTinyLocal, 0, TinyRows(2, 5));
  const std::string closed = With(1);
  wire_.Close(closed);
  const std::string full = With(kTinyMaxLength);
  const std::string poisoned = With(1);

  const std::vector<Part> parts = {{a_, 4, 3},    {"nobody", 0}, {capped, 5},     {closed, 1},
                                   {prefixed, 9}, {"bad id", 0}, {full, 256},     {poisoned, 1},
                                   {With(3), 9},  {b_, 6},       {With(2), -1, 2}};
  std::vector<float> values = RandomRows(5, 14, kTinyWidth);
  values[9 * kTinyWidth + 1] = NAN;  // the row of `poisoned`
  v1::DecodeRequest request = DecodeOf(kTinyLocal, parts, MakeTensor(values, kTinyWidth));
  v1::DecodeResponse response;
  const Outcome outcome = wire_.Decode(request, &response);
  ASSERT_TRUE(outcome.ok()) << outcome;

  const std::vector<std::pair<std::string, int64_t>> expected = {
      {"OK", 7},
      {"NOT_FOUND SESSION_UNKNOWN", 0},
      {"OUT_OF_RANGE PAST_MAX_TOKENS", 5},
      {"NOT_FOUND SESSION_CLOSED", 0},
      {"FAILED_PRECONDITION PREFIX_INCOMPLETE", 9},
      {"INVALID_ARGUMENT BAD_SESSION_ID", 0},
      {"OUT_OF_RANGE PAST_MAX_SEQ_LEN", 256},
      {"INVALID_ARGUMENT NOT_FINITE", 1},
      {"FAILED_PRECONDITION POSITION_MISMATCH", 3},
      {"OK", 7},
      {"INVALID_ARGUMENT BAD_ARGUMENT", 2}};
  ASSERT_EQ(response.results_size(), static_cast<int>(expected.size()));
  const std::vector<float> output = Values(response.output());
  ASSERT_EQ(output.size(), values.size());
  int64_t row = 0;
  for (int i = 0; i < response.results_size(); ++i) {
    const v1::SequenceResult& result = response.results(i);
    EXPECT_EQ(StatusText(result.status()), expected[i].first) << i;
    EXPECT_EQ(result.length(), expected[i].second) << i << ": " << expected[i].first;
    EXPECT_EQ(result.status().message().empty(), expected[i].first == "OK") << i;
    for (uint32_t t = 0; t < parts[i].tokens; ++t, ++row) {
      const std::vector<float> answer = RowsOf(output, kTinyWidth, row, 1);
      const bool zero = answer == std::vector<float>(kTinyWidth, 0.0f);
      EXPECT_EQ(zero, expected[i].first != "OK") << "row " << row;
    }
  }
  // What succeeded beside the failures has the bits that it has alone.
  const std::string twin = wire_.Create();
  wire_.Prefill(twin, kTinyLocal, 0, TinyRows(4, 4));
  const std::vector<float> alone = wire_.Decode(
      kTinyLocal, {{twin, 4, 3}}, MakeTensor(RowsOf(values, kTinyWidth, 0, 3), kTinyWidth));
  EXPECT_EQ(alone, RowsOf(output, kTinyWidth, 0, 3));
}

TEST_F(DecodeErrorsTest, WhenAllFailAlikeTheCallFails) {
  v1::DecodeResponse response;
  Outcome outcome =
      wire_.Decode(DecodeOf(kTinyLocal, {{a_, 9}, {b_, 9}}, TinyRows(1, 2)), &response);
  EXPECT_EQ(outcome.text(), "FAILED_PRECONDITION POSITION_MISMATCH");
  outcome = wire_.Decode(DecodeOf(kTinyLocal, {{"x", 0}, {"y", 0}}, TinyRows(1, 2)), &response);
  EXPECT_EQ(outcome.text(), "NOT_FOUND SESSION_UNKNOWN");
  outcome = wire_.Decode(DecodeOf(kTinyLocal, {{"x", 0}, {a_, 9}}, TinyRows(1, 2)), &response);
  ASSERT_TRUE(outcome.ok()) << "different reasons stay apart";
  EXPECT_EQ(StatusText(response.results(0).status()), "NOT_FOUND SESSION_UNKNOWN");
  EXPECT_EQ(StatusText(response.results(1).status()), "FAILED_PRECONDITION POSITION_MISMATCH");
}

TEST_F(DecodeErrorsTest, OutputDtype) {
  v1::DecodeRequest request = DecodeOf(kTinyLocal, {{a_, 4}}, TinyRows(1, 1));
  v1::DecodeResponse full, half;
  ASSERT_TRUE(wire_.Decode(request, &full).ok());
  EXPECT_EQ(full.output().dtype(), v1::DTYPE_F32) << "that of hidden";
  request.mutable_sequences(0)->set_rewind(true);
  request.set_output_dtype(v1::DTYPE_BF16);
  ASSERT_TRUE(wire_.Decode(request, &half).ok());
  EXPECT_EQ(half.output().dtype(), v1::DTYPE_BF16);
  EXPECT_EQ(half.output().data().size(), 128u);
  const std::vector<float> exact = Values(full.output());
  const std::vector<float> rounded = Values(half.output());
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_NEAR(rounded[i], exact[i], std::abs(exact[i]) / 200);
  }
}

}  // namespace
}  // namespace attnd
