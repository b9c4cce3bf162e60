// Requests off slices of every length; what takes the generated parser; what is refused, and that
// a length that is not there costs nothing.
#include "server/fast_parse.h"

#include "core/error.h"
#include "server/varint.h"
#include "tests/server/wire_bytes.h"

namespace attnd::server {
namespace {

constexpr int64_t kRowBytes = 2;

v1::PrefillRequest Prefill(size_t bytes) {
  v1::PrefillRequest request;
  request.set_session_id("session");
  request.set_layer(3);
  request.set_position(1000);
  request.set_rewind(true);
  request.set_output_dtype(v1::DTYPE_BF16);
  request.mutable_hidden()->set_dtype(v1::DTYPE_F32);
  request.mutable_hidden()->add_shape(7);
  request.mutable_hidden()->add_shape(-1);
  for (size_t i = 0; i < bytes; ++i) {
    request.mutable_hidden()->mutable_data()->push_back(static_cast<char>(i % 251));
  }
  return request;
}

v1::DecodeRequest Decode(size_t bytes) {
  v1::DecodeRequest request;
  request.set_layer(2);
  for (int i = 0; i < 5; ++i) {
    request.add_sequences()->set_session_id("s" + std::to_string(i));
    request.mutable_sequences(i)->set_position(100 * i);
  }
  *request.mutable_hidden() = Prefill(bytes).hidden();
  return request;
}

v1::StepRequest Step(const v1::PrefillRequest& prefill) {
  v1::StepRequest request;
  request.set_step_id(77);
  *request.mutable_prefill() = prefill;
  request.mutable_timeout()->set_seconds(3);
  return request;
}

v1::StepRequest Step(const v1::DecodeRequest& decode) {
  v1::StepRequest request;
  request.set_step_id(78);
  *request.mutable_decode() = decode;
  return request;
}

v1::StepRequest Whole(v1::StepRequest request, const TensorBytes& hidden) {
  if (request.has_prefill()) {
    *request.mutable_prefill() = Whole(request.prefill(), hidden);
  } else if (request.has_decode()) {
    *request.mutable_decode() = Whole(request.decode(), hidden);
  }
  return request;
}

// However small the message is.
constexpr size_t kAlwaysWalk = 0;

bool TookTheFastPath(const TensorBytes& hidden) { return !hidden.slices.empty(); }

// `bytes` in slices of every length give `expected`.
template <typename Request>
void ExpectParses(const std::string& bytes, const Request& expected, bool fast) {
  for (size_t piece : {0, 1, 2, 3, 5, 7, 16, 64, 1000}) {
    Request request;
    TensorBytes hidden;
    grpc::ByteBuffer buffer = Buffer(bytes, piece);
    ASSERT_TRUE(ParseRequest(&buffer, kRowBytes, &request, &hidden, kAlwaysWalk).ok());
    EXPECT_EQ(buffer.Length(), 0U);
    EXPECT_EQ(TookTheFastPath(hidden) || bytes.empty(), fast);
    EXPECT_EQ(hidden.size, static_cast<int64_t>(Bytes(hidden).size()));
    EXPECT_EQ(Whole(request, hidden).SerializeAsString(), expected.SerializeAsString());
  }
}

template <typename Request>
void ExpectFast(const Request& request) {
  ExpectParses(request.SerializeAsString(), request, true);
}

template <typename Request>
std::string ErrorText(grpc::ByteBuffer buffer, size_t most_bytes = 10'000) {
  Request request;
  TensorBytes hidden;
  const absl::Status status = ParseRequest(&buffer, kRowBytes, &request, &hidden, kAlwaysWalk);
  EXPECT_LT(request.SpaceUsedLong(), most_bytes);
  EXPECT_LT(hidden.parsed.capacity(), 10'000U);
  return status.ok() ? "OK" : ReasonName(*ReasonOf(status));
}

TEST(FastParseTest, WhatClientsSend) {
  for (size_t bytes : {0, 1, 4, 1024, 70'000}) {
    ExpectFast(Prefill(bytes));
    ExpectFast(Decode(bytes));
    ExpectFast(Step(Prefill(bytes)));
    ExpectFast(Step(Decode(bytes)));
  }
  ExpectFast(v1::StepRequest());
  v1::StepRequest cancel;
  cancel.set_step_id(1);
  cancel.set_cancel_step_id(5);
  ExpectFast(cancel);
  v1::PrefillRequest empty;
  empty.mutable_hidden();
  ExpectFast(empty);
}

TEST(FastParseTest, TheBytesStayWhereTheyCame) {
  grpc::ByteBuffer buffer = Buffer(Prefill(1 << 20).SerializeAsString(), 64 << 10);
  v1::PrefillRequest request;
  TensorBytes hidden;
  ASSERT_TRUE(ParseRequest(&buffer, kRowBytes, &request, &hidden).ok());
  EXPECT_EQ(request.hidden().data(), "");
  ASSERT_EQ(hidden.pieces.size(), hidden.slices.size());
  for (size_t i = 0; i < hidden.pieces.size(); ++i) {
    const auto* end = reinterpret_cast<const char*>(hidden.slices[i].end());
    EXPECT_EQ(hidden.pieces[i].data() + hidden.pieces[i].size(), end);
  }
}

TEST(FastParseTest, SmallMessagesGoToTheGeneratedParserWhole) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{1024}, 2 * kSmallMessage}) {
    const v1::DecodeRequest expected = Decode(bytes);
    for (size_t piece : {0, 1, 7, 1000}) {
      v1::DecodeRequest request;
      TensorBytes hidden;
      grpc::ByteBuffer buffer = Buffer(expected.SerializeAsString(), piece);
      ASSERT_TRUE(ParseRequest(&buffer, kRowBytes, &request, &hidden).ok());
      EXPECT_EQ(buffer.Length(), 0U);
      EXPECT_EQ(TookTheFastPath(hidden), bytes > kSmallMessage);
      EXPECT_EQ(hidden.size, static_cast<int64_t>(bytes));
      EXPECT_EQ(request.hidden().data(), "");
      EXPECT_EQ(Whole(request, hidden).SerializeAsString(), expected.SerializeAsString());
    }
  }
}

TEST(FastParseTest, FieldsInAnyOrder) {
  const v1::PrefillRequest expected = Prefill(40);
  v1::PrefillRequest rest = expected;
  rest.clear_hidden();
  v1::PrefillRequest hidden;
  *hidden.mutable_hidden() = expected.hidden();
  ExpectParses(hidden.SerializeAsString() + rest.SerializeAsString(), expected, true);
}

// Field 15 of length `inner`, holding it.
std::string Nested(const std::string& inner) {
  std::string bytes;
  AppendFieldStart(15, inner.size(), &bytes);
  return bytes + inner;
}

TEST(FastParseTest, WhatTakesTheGeneratedParser) {
  const v1::PrefillRequest request = Prefill(40);
  const std::string plain = request.SerializeAsString();
  v1::PrefillRequest merged = request;
  merged.mutable_hidden()->add_shape(9);
  merged.mutable_hidden()->set_data("last");
  v1::PrefillRequest second;
  second.mutable_hidden()->add_shape(9);
  second.mutable_hidden()->set_data("last");
  ExpectParses(plain + second.SerializeAsString(), merged, false);

  v1::PrefillRequest twice;
  twice.mutable_hidden()->set_data("b");
  ExpectParses(Nested(Nested("a") + Nested("b")), twice, false);

  const std::string group("\x63\x08\x01\x64", 4);  // field 12
  ExpectParses(plain + group, Parsed<v1::PrefillRequest>(Buffer(plain + group)), false);
  const std::string longer_tag("\xe0\x80\x00\x01", 4);  // field 12, its tag not the shortest
  ExpectParses(plain + longer_tag, Parsed<v1::PrefillRequest>(Buffer(plain + longer_tag)), false);

  v1::PrefillRequest longer = request;
  longer.set_session_id(std::string(5000, 'x'));
  ExpectParses(longer.SerializeAsString(), longer, false);
}

TEST(FastParseTest, AFieldOfALaterVersionDoesNot) {
  const std::string plain = Prefill(40).SerializeAsString();
  const std::string high("\xa0\x06\x01\xaa\x06\x02xy", 8);  // fields 100 and 101
  ExpectParses(plain + high, Parsed<v1::PrefillRequest>(Buffer(plain + high)), true);
}

TEST(FastParseTest, MoreSequencesThanRowsAreNotParsed) {
  constexpr size_t kSpare = 1024;
  std::string sequences;
  for (size_t i = 0; i < kSpare + 20; ++i) {
    sequences += std::string("\x12\x00", 2);
  }
  v1::DecodeRequest tensor;  // 20 rows of two bytes
  tensor.mutable_hidden()->set_data(std::string(20 * kRowBytes, 'x'));
  const std::string all = sequences + tensor.SerializeAsString();
  EXPECT_EQ(ErrorText<v1::DecodeRequest>(Buffer(all, 100), 1'000'000), "OK");
  EXPECT_EQ(ErrorText<v1::DecodeRequest>(Buffer(all + std::string("\x12\x00", 2), 100)),
            "BAD_BATCH");
  v1::StepRequest step;
  std::string nested;
  AppendFieldStart(v1::StepRequest::kDecodeFieldNumber, all.size() + 2, &nested);
  EXPECT_EQ(ErrorText<v1::StepRequest>(Buffer(nested + all + std::string("\x12\x00", 2))),
            "BAD_BATCH");
}

TEST(FastParseTest, AnUnusualShapeMayHaveAMebibyte) {
  constexpr size_t kMost = size_t{1} << 20;
  std::string packed;  // a shape of one-byte elements: eight bytes each when parsed
  AppendFieldStart(v1::Tensor::kShapeFieldNumber, kMost, &packed);
  packed += std::string(kMost, '\x01');
  EXPECT_EQ(ErrorText<v1::PrefillRequest>(Buffer(Nested(packed), 4096)), "BAD_ARGUMENT");
}

TEST(FastParseTest, TheLastKindOfAStepCounts) {
  const v1::StepRequest prefill = Step(Prefill(40));
  v1::StepRequest cancel;
  cancel.set_cancel_step_id(5);
  v1::StepRequest cancelled = prefill;
  cancelled.MergeFrom(cancel);
  ExpectParses(prefill.SerializeAsString() + cancel.SerializeAsString(), cancelled, true);
  v1::StepRequest request;
  TensorBytes hidden;
  grpc::ByteBuffer buffer = Buffer(prefill.SerializeAsString() + cancel.SerializeAsString());
  ASSERT_TRUE(ParseRequest(&buffer, kRowBytes, &request, &hidden).ok());
  EXPECT_EQ(hidden.size, 0);

  v1::StepRequest both = prefill;
  both.MergeFrom(Step(Decode(8)));
  ExpectParses(prefill.SerializeAsString() + Step(Decode(8)).SerializeAsString(), both, false);
}

TEST(FastParseTest, EveryTruncationIsRefusedOrShorter) {
  const std::string bytes = Step(Prefill(40)).SerializeAsString();
  for (size_t n = 0; n < bytes.size(); ++n) {
    const bool expected = v1::StepRequest().ParseFromString(bytes.substr(0, n));
    EXPECT_EQ(ErrorText<v1::StepRequest>(Buffer(bytes.substr(0, n), 3)),
              expected ? "OK" : "BAD_ARGUMENT")
        << n;
  }
}

TEST(FastParseTest, WhatIsNoMessage) {
  EXPECT_EQ(ErrorText<v1::PrefillRequest>(grpc::ByteBuffer()), "BAD_ARGUMENT");
  EXPECT_EQ(ErrorText<v1::DecodeRequest>(Buffer(std::string(100, '\xff'), 9)), "BAD_ARGUMENT");
  EXPECT_EQ(ErrorText<v1::PrefillRequest>(Buffer("\x0a\x02\xff\xff")), "BAD_ARGUMENT");  // UTF-8
  v1::PrefillRequest request;
  TensorBytes hidden;
  grpc::ByteBuffer buffer = Buffer("\x0a");
  EXPECT_EQ(ParseRequest(&buffer, kRowBytes, &request, &hidden).message(),
            "the message's 1 bytes do not parse; expected attnd.v1.PrefillRequest");
  grpc::ByteBuffer none;
  EXPECT_FALSE(ParseRequest(&none, kRowBytes, &request, &hidden).ok());
}

TEST(FastParseTest, ALengthThatIsNotThereCostsNothing) {
  for (uint64_t length :
       {uint64_t{100}, uint64_t{1} << 30, uint64_t{1} << 40, uint64_t{1} << 63, UINT64_MAX}) {
    std::string data;  // a tensor whose data is said to be so long
    AppendFieldStart(15, length, &data);
    data += std::string(50, 'x');
    std::string hidden;
    AppendFieldStart(15, length, &hidden);
    hidden += Nested("abc");
    std::string prefill;
    AppendFieldStart(2, length, &prefill);
    std::string whole;
    AppendFieldStart(2, Nested(data).size(), &whole);
    for (const std::string& bytes : {Nested(data), data, hidden}) {
      EXPECT_EQ(ErrorText<v1::PrefillRequest>(Buffer(bytes)), "BAD_ARGUMENT");
      EXPECT_EQ(ErrorText<v1::DecodeRequest>(Buffer(bytes, 4)), "BAD_ARGUMENT");
    }
    for (const std::string& bytes :
         {prefill + data, prefill + Nested(data), whole + Nested(data)}) {
      EXPECT_EQ(ErrorText<v1::StepRequest>(Buffer(bytes)), "BAD_ARGUMENT");
    }
  }
}

}  // namespace
}  // namespace attnd::server
