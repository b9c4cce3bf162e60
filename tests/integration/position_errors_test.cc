// Positions, cuts and prefixes: what is refused, with which words, and what is accepted.
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

using testing::HasSubstr;

class PositionErrorsTest : public TinyServerTest {
 protected:
  v1::PrefillRequest At(const std::string& session, int64_t position, bool rewind = false,
                        uint32_t layer = kTinyLocal) {
    v1::PrefillRequest request = PrefillOf(session, layer, position, TinyRows(3, 2));
    request.set_rewind(rewind);
    return request;
  }
};

TEST_F(PositionErrorsTest, WrongPositionNamesTheExpectedOne) {
  const std::string session = wire_.Create();
  wire_.Prefill(session, kTinyLocal, 0, TinyRows(1, 17));
  for (int64_t position : {0, 16, 18, 100}) {
    const Outcome outcome = Refused(At(session, position));
    EXPECT_EQ(outcome.text(), "FAILED_PRECONDITION POSITION_MISMATCH") << position;
    EXPECT_THAT(outcome.message, HasSubstr("17"));
  }
  EXPECT_EQ(Refused(At(session, 18, true)).text(), "FAILED_PRECONDITION POSITION_MISMATCH");
  EXPECT_EQ(wire_.Prefill(session, kTinyLocal, 17, TinyRows(3, 2)).size(), 128u);
  EXPECT_EQ(wire_.Length(session, kTinyLocal), 19);
  EXPECT_EQ(wire_.Length(session, kTinyGlobal), 0) << "layers advance independently";
}

TEST_F(PositionErrorsTest, ExpectedLengthGuardsALateRetry) {
  const std::string session = wire_.Create();
  wire_.Prefill(session, kTinyLocal, 0, TinyRows(1, 17));
  v1::PrefillRequest retry = At(session, 10, true);
  retry.set_expected_length(12);
  EXPECT_EQ(Refused(retry).text(), "FAILED_PRECONDITION POSITION_MISMATCH");
  retry.set_expected_length(17);
  v1::PrefillResponse response;
  EXPECT_TRUE(wire_.Prefill(retry, &response).ok());
  EXPECT_EQ(response.length(), 12);
}

TEST_F(PositionErrorsTest, CutsBehindTheFloorAreTooFar) {
  const std::string session = wire_.Create();
  for (int64_t at = 0; at < 250; at += 25) {
    wire_.Prefill(session, kTinyLocal, at, TinyRows(at, 25));
    wire_.Prefill(session, kTinyGlobal, at, TinyRows(at, 25));
  }
  v1::Session info;
  ASSERT_TRUE(wire_.Get(session, &info).ok());
  const int64_t floor = info.rewind_floor();
  EXPECT_GT(floor, 0);
  EXPECT_LE(floor, 250 - 64) << "max_rewind";
  const Outcome outcome = Refused(At(session, floor - 1, true));
  EXPECT_EQ(outcome.text(), "FAILED_PRECONDITION REWIND_TOO_FAR");
  EXPECT_THAT(outcome.message, HasSubstr(std::to_string(floor)));
  const Outcome rewound = wire_.Rewind(session, floor - 1, &info);
  EXPECT_EQ(rewound.text(), "FAILED_PRECONDITION REWIND_TOO_FAR");
  EXPECT_THAT(rewound.message, HasSubstr("layer"));
  EXPECT_EQ(wire_.Length(session, kTinyGlobal), 250) << "all layers or none";
  v1::PrefillResponse response;
  EXPECT_TRUE(wire_.Prefill(At(session, floor - 1, true, kTinyGlobal), &response).ok())
      << "a global layer can be cut anywhere";
  EXPECT_TRUE(wire_.Rewind(session, floor, &info).ok());
  EXPECT_EQ(info.layer_lengths(kTinyLocal), floor);
  EXPECT_TRUE(wire_.Rewind(session, 0, &info).ok());
  EXPECT_THAT(info.layer_lengths(), testing::Each(0));
}

TEST_F(PositionErrorsTest, DecodeWaitsForThePrefix) {
  const std::string session = wire_.Create(20);
  EXPECT_EQ(wire_.Prefill(session, kTinyLocal, 0, TinyRows(1, 15)).size(), 0u);
  v1::DecodeResponse decoded;
  const Outcome outcome =
      wire_.Decode(DecodeOf(kTinyLocal, {{session, 15}}, TinyRows(2, 1)), &decoded);
  EXPECT_EQ(outcome.text(), "FAILED_PRECONDITION PREFIX_INCOMPLETE");
  EXPECT_THAT(outcome.message, HasSubstr("20"));
  EXPECT_EQ(wire_.Length(session, kTinyLocal), 15);
  EXPECT_EQ(wire_.Prefill(session, kTinyLocal, 15, TinyRows(2, 5)).size(), 20u * 64);
  EXPECT_EQ(wire_.Decode(kTinyLocal, {{session, 20}}, TinyRows(2, 1)).size(), 64u);
}

TEST_F(PositionErrorsTest, AnAnsweredPrefixIsCutWholeOrNotAtAll) {
  for (uint32_t layer : {kTinyLocal, kTinyGlobal}) {
    const std::string session = wire_.Create(20);
    wire_.Prefill(session, layer, 0, TinyRows(1, 10));
    EXPECT_EQ(wire_.Prefill(session, layer, 5, TinyRows(1, 5), true).size(), 0u)
        << "an unanswered prefix can be cut anywhere";
    wire_.Prefill(session, layer, 10, TinyRows(2, 10));
    wire_.Prefill(session, layer, 20, TinyRows(2, 1));
    for (int64_t position : {1, 10, 19}) {
      EXPECT_EQ(Refused(At(session, position, true, layer)).text(),
                "FAILED_PRECONDITION PREFIX_ANSWERED")
          << position;
    }
    v1::Session info;
    EXPECT_EQ(wire_.Rewind(session, 7, &info).text(), "FAILED_PRECONDITION PREFIX_ANSWERED");
    v1::PrefillResponse response;
    EXPECT_TRUE(wire_.Prefill(At(session, 20, true, layer), &response).ok());
    EXPECT_TRUE(wire_.Prefill(At(session, 0, true, layer), &response).ok());
    EXPECT_EQ(response.length(), 2);
    EXPECT_EQ(response.output().shape(0), 0) << "the prefix is pending again";
  }
}

TEST_F(PositionErrorsTest, TheRowsThatAreWanted) {
  const std::string whole = wire_.Create(20);
  const std::vector<float> all = wire_.Prefill(whole, kTinyLocal, 0, TinyRows(1, 30));
  ASSERT_EQ(all.size(), 30u * 64);
  for (const auto& [wanted, position, rows] : {std::tuple{v1::OUTPUT_ROWS_ALL, 0, 30},
                                               {v1::OUTPUT_ROWS_LAST, 29, 1},
                                               {v1::OUTPUT_ROWS_NONE, 12, 0}}) {
    const std::string session = wire_.Create(20);
    const std::vector<float> values = RandomRows(1, 30, kTinyWidth);
    v1::PrefillRequest request = PrefillOf(
        session, kTinyLocal, 0, MakeTensor(RowsOf(values, kTinyWidth, 0, 12), kTinyWidth));
    request.set_output_rows(v1::OUTPUT_ROWS_ALL);
    v1::PrefillResponse response;
    ASSERT_TRUE(wire_.Prefill(request, &response).ok());
    EXPECT_EQ(response.output_position(), 0);
    EXPECT_EQ(response.output().shape(0), 0) << "the prefix is not complete";
    EXPECT_EQ(response.output().shape(1), kTinyWidth);

    request = PrefillOf(session, kTinyLocal, 12,
                        MakeTensor(RowsOf(values, kTinyWidth, 12, 18), kTinyWidth));
    request.set_output_rows(wanted);
    ASSERT_TRUE(wire_.Prefill(request, &response).ok());
    EXPECT_EQ(response.output_position(), position);
    EXPECT_EQ(response.length(), 30);
    ASSERT_EQ(response.output().shape(0), rows);
    const std::vector<float> some = Values(response.output());
    const std::vector<float> same = RowsOf(all, kTinyWidth, rows == 0 ? 0 : position, rows);
    for (size_t i = 0; i < some.size(); ++i) {
      ASSERT_NEAR(some[i], same[i], 1e-5);
    }
  }
}

}  // namespace
}  // namespace attnd
