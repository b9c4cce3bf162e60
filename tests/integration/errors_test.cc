// What a request itself may have wrong: the code, the reason, a message that says what was
// expected, nothing changed, and the next correct call works.
#include <cmath>
#include <limits>

#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

using testing::HasSubstr;

class ErrorsTest : public TinyServerTest {
 protected:
  v1::PrefillRequest Good(int64_t rows = 2) {
    return PrefillOf(session_, kTinyLocal, 0, TinyRows(3, rows));
  }

  std::string session_ = wire_.Create();
};

TEST_F(ErrorsTest, UnknownSession) {
  v1::PrefillRequest request = Good();
  request.set_session_id("nobody");
  const Outcome outcome = Refused(request);
  EXPECT_EQ(outcome.text(), "NOT_FOUND SESSION_UNKNOWN");
  EXPECT_THAT(outcome.message, HasSubstr("nobody"));
  v1::Session info;
  EXPECT_EQ(wire_.Get("nobody", &info).text(), "NOT_FOUND SESSION_UNKNOWN");
  EXPECT_EQ(wire_.Rewind("nobody", 0, &info).text(), "NOT_FOUND SESSION_UNKNOWN");
  v1::CloseSessionResponse closed;
  EXPECT_EQ(wire_.Close("nobody", &closed).text(), "NOT_FOUND SESSION_UNKNOWN");
}

TEST_F(ErrorsTest, BadSessionIds) {
  for (const std::string& id :
       {std::string(), std::string("a b"), std::string("a/b"), std::string(129, 'x'),
        std::string("\xc3\xa4"), std::string("a\0b", 3), std::string("a\nb")}) {
    v1::PrefillRequest request = Good();
    request.set_session_id(id);
    EXPECT_EQ(Refused(request).text(), "INVALID_ARGUMENT BAD_SESSION_ID") << id;
    v1::Session info;
    EXPECT_EQ(wire_.Get(id, &info).text(), "INVALID_ARGUMENT BAD_SESSION_ID") << id;
    if (!id.empty()) {
      v1::CreateSessionRequest create;
      create.set_session_id(id);
      EXPECT_EQ(wire_.Create(create, &info).text(), "INVALID_ARGUMENT BAD_SESSION_ID") << id;
    }
  }
}

TEST_F(ErrorsTest, WrongShapes) {
  const std::vector<std::vector<int64_t>> shapes = {
      {},         {64},    {2, 63},  {2, 65},  {64, 2},
      {1, 2, 64}, {0, 64}, {-1, 64}, {2, -64}, std::vector<int64_t>(1000, 1)};
  for (const std::vector<int64_t>& shape : shapes) {
    v1::PrefillRequest request = Good();
    request.mutable_hidden()->mutable_shape()->Assign(shape.begin(), shape.end());
    const Outcome outcome = Refused(request);
    EXPECT_EQ(outcome.text(), "INVALID_ARGUMENT BAD_TENSOR");
    EXPECT_THAT(outcome.message, HasSubstr("64"));
    EXPECT_LT(outcome.message.size(), 300u) << "a hostile shape is not repeated in full";
  }
  v1::PrefillRequest request = Good();
  request.clear_hidden();
  EXPECT_EQ(Refused(request).text(), "INVALID_ARGUMENT BAD_TENSOR");
}

TEST_F(ErrorsTest, ShapesWhoseProductOverflows) {
  for (int64_t rows : {int64_t{1} << 40, int64_t{1} << 56, (int64_t{1} << 56) + 2,
                       std::numeric_limits<int64_t>::max()}) {
    v1::PrefillRequest request = Good();
    request.mutable_hidden()->set_shape(0, rows);
    EXPECT_EQ(Refused(request).text(), "INVALID_ARGUMENT BAD_TENSOR") << rows;
  }
}

TEST_F(ErrorsTest, WrongByteCounts) {
  for (int64_t bytes : {0, 1, 511, 513, 256, 1024}) {
    v1::PrefillRequest request = Good();
    request.mutable_hidden()->mutable_data()->resize(static_cast<size_t>(bytes));
    const Outcome outcome = Refused(request);
    EXPECT_EQ(outcome.text(), "INVALID_ARGUMENT BAD_TENSOR") << bytes;
    EXPECT_THAT(outcome.message, HasSubstr(std::to_string(bytes)));
  }
}

TEST_F(ErrorsTest, BadDtypes) {
  for (int dtype : {0, 4, 5, 77}) {
    v1::PrefillRequest request = Good();
    request.mutable_hidden()->set_dtype(static_cast<v1::Dtype>(dtype));
    EXPECT_EQ(Refused(request).text(), "INVALID_ARGUMENT BAD_TENSOR") << dtype;
    if (dtype != 0) {
      request = Good();
      request.set_output_dtype(static_cast<v1::Dtype>(dtype));
      EXPECT_EQ(Refused(request).text(), "INVALID_ARGUMENT BAD_TENSOR") << dtype;
    }
  }
}

TEST_F(ErrorsTest, BadLayers) {
  for (uint32_t layer : {6u, 1000u, 0xffffffffu}) {
    v1::PrefillRequest request = Good();
    request.set_layer(layer);
    const Outcome outcome = Refused(request);
    EXPECT_EQ(outcome.text(), "INVALID_ARGUMENT BAD_LAYER");
    EXPECT_THAT(outcome.message, HasSubstr("5")) << "the last layer";
  }
}

TEST_F(ErrorsTest, BadNumbers) {
  v1::PrefillRequest request = Good();
  request.set_position(-1);
  EXPECT_EQ(Refused(request).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
  request = Good();
  request.set_position(std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Refused(request).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
  request = Good();
  request.set_expected_length(-5);
  EXPECT_EQ(Refused(request).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
  request = Good();
  request.set_output_rows(static_cast<v1::OutputRows>(9));
  EXPECT_EQ(Refused(request).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
  v1::Session info;
  EXPECT_EQ(wire_.Rewind(session_, -1, &info).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
}

TEST_F(ErrorsTest, PastTheModelsLength) {
  v1::PrefillRequest request = Good();
  for (int64_t position : {int64_t{255}, int64_t{256}, std::numeric_limits<int64_t>::max()}) {
    request.set_position(position);
    const Outcome outcome = Refused(request);
    EXPECT_EQ(outcome.text(), "OUT_OF_RANGE PAST_MAX_SEQ_LEN") << position;
    EXPECT_THAT(outcome.message, HasSubstr("256"));
  }
  EXPECT_EQ(Refused(Good(kTinyMaxLength + 1)).text(), "OUT_OF_RANGE PAST_MAX_SEQ_LEN");
  wire_.Prefill(session_, kTinyLocal, 0, TinyRows(3, kTinyMaxLength));
  request.set_position(kTinyMaxLength);
  EXPECT_EQ(Refused(request).text(), "OUT_OF_RANGE PAST_MAX_SEQ_LEN");
}

TEST_F(ErrorsTest, PastTheSessionsTokens) {
  const std::string capped = wire_.Create(0, 10);
  wire_.Prefill(capped, kTinyLocal, 0, TinyRows(3, 9));
  const Outcome outcome = Refused(PrefillOf(capped, kTinyLocal, 9, TinyRows(4, 2)));
  EXPECT_EQ(outcome.text(), "OUT_OF_RANGE PAST_MAX_TOKENS");
  EXPECT_THAT(outcome.message, HasSubstr("10"));
  EXPECT_EQ(wire_.Decode(kTinyLocal, {{capped, 9}}, TinyRows(4, 1)).size(), 64u);
}

TEST_F(ErrorsTest, NanAndInfinity) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    for (v1::Dtype dtype : {v1::DTYPE_F32, v1::DTYPE_BF16, v1::DTYPE_F16}) {
      std::vector<float> values = RandomRows(3, 2, kTinyWidth);
      values[77] = bad;
      const v1::PrefillRequest request =
          PrefillOf(session_, kTinyLocal, 0, MakeTensor(values, kTinyWidth, dtype));
      EXPECT_EQ(Refused(request).text(), "INVALID_ARGUMENT NOT_FINITE") << bad << " " << dtype;
    }
  }
}

TEST_F(ErrorsTest, CreateSessionArguments) {
  v1::Session info;
  v1::CreateSessionRequest request;
  request.set_prefix_length(-1);
  EXPECT_EQ(wire_.Create(request, &info).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
  request.set_prefix_length(kTinyMaxLength + 1);
  EXPECT_EQ(wire_.Create(request, &info).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
  request.Clear();
  request.set_max_tokens(-1);
  EXPECT_EQ(wire_.Create(request, &info).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
  request.Clear();
  request.mutable_idle_ttl()->set_seconds(-1);
  EXPECT_EQ(wire_.Create(request, &info).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
  request.mutable_idle_ttl()->set_seconds(int64_t{1} << 60);
  EXPECT_EQ(wire_.Create(request, &info).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
  request.Clear();
  request.set_session_id(session_);
  EXPECT_EQ(wire_.Create(request, &info).text(), "ALREADY_EXISTS SESSION_EXISTS");
  v1::ListSessionsResponse list;
  EXPECT_EQ(wire_.List(-1, "", &list).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
  EXPECT_EQ(wire_.List(10, "no such token", &list).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
}

}  // namespace
}  // namespace attnd
