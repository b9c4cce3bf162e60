#include "core/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/safetensors_json.h"
#include "tests/support/cpu_timer.h"
#include "tests/support/golden.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_dir.h"

namespace attnd {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::vector<SafetensorsEntry>> Parse(const std::string& file) {
  return ParseSafetensorsHeader({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
}

// The message of a refusal, which is one short line and comes within a second.
std::string Refusal(const std::string& file) {
  const CpuTimer timer;
  const auto entries = Parse(file);
  EXPECT_LT(timer.Seconds(), kRefusalSeconds);
  if (entries.ok()) {
    return "accepted";
  }
  EXPECT_EQ(ReasonOf(entries.status()), Reason::kBadArgument);
  const std::string message(entries.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), 500u) << message;
  return message;
}

std::string Tensor(const std::string& name, const std::string& offsets,
                   const std::string& shape = "[2]", const std::string& dtype = R"("F32")") {
  return "\"" + name + R"(":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

const std::string kData(16, '\x01');

TEST(Safetensors, ReadsEntriesInOrder) {
  const std::string file = FileOfTensors({{"b", "F32", {2, 1}, std::string(8, 'b')},
                                          {"a", "BF16", {2}, std::string(4, 'a')},
                                          {"empty", "F64", {0}, ""},
                                          {"scalar", "I8", {}, "s"}});
  const auto entries = Parse(file).value();
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].name, "b");
  EXPECT_EQ(entries[0].dtype, "F32");
  EXPECT_EQ(entries[0].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(file.substr(entries[0].begin, entries[0].end - entries[0].begin), "bbbbbbbb");
  EXPECT_EQ(file.substr(entries[1].begin, entries[1].end - entries[1].begin), "aaaa");
  EXPECT_EQ(entries[2].begin, entries[2].end);
  EXPECT_EQ(file.substr(entries[3].begin), "s");
}

TEST(Safetensors, AcceptsMetadataPaddingAndFieldsInAnyOrder) {
  const std::string header = R"({"__metadata__":{"format":"pt","x":"y"},"a":{"data_offsets":[0,8],)"
                             R"("shape":[2],"dtype":"F32"}}   )";
  const auto entries = Parse(FileWithHeader(header, kData)).value();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_TRUE(Parse(FileWithHeader("{}", "")).value().empty());
}

TEST(Safetensors, RefusesWrongLengths) {
  EXPECT_EQ(Refusal(""), "has 0 bytes; a safetensors file begins with 8 of length");
  EXPECT_EQ(Refusal("1234567"), "has 7 bytes; a safetensors file begins with 8 of length");
  EXPECT_THAT(Refusal(std::string(8, '\0')), HasSubstr("does not begin with '{'"));
  std::string huge = FileWithHeader("{}", kData);
  huge[7] = '\x10';  // 2^60 and two
  EXPECT_EQ(Refusal(huge),
            "has a header of 1152921504606846978 bytes; expected at most 18, what is left of the "
            "file");
  huge[7] = '\xFF';
  EXPECT_THAT(Refusal(huge), HasSubstr("has a header of 18374686479671623682 bytes"));
  EXPECT_THAT(Refusal(FileWithHeader("{}", "").substr(0, 9)), HasSubstr("expected at most 1"));
}

TEST(Safetensors, RefusesWhatIsNotJson) {
  for (const char* header : {"[]", "3", "null", " {}", "", "\"a\""}) {
    EXPECT_THAT(Refusal(FileWithHeader(header, kData)), HasSubstr("does not begin with '{'"));
  }
  for (const char* header :
       {"{", "{]", "{}{}", "{\"a\"", "{\"a\":}", "{a:1}", "{\"__metadata__\":{},}", "{}x", "{/**/}",
        "{\"a\":1e999}", "{\"a\\ud800\":{}}"}) {
    EXPECT_THAT(Refusal(FileWithHeader(header, kData)), HasSubstr("is not JSON")) << header;
  }
  EXPECT_EQ(Refusal(FileWithHeader("{\"\xFF\":1}", kData)), "is not UTF-8 at byte 2");
  EXPECT_EQ(Refusal(FileWithHeader("{\"a\":\"\xC3(\"}", kData)), "is not UTF-8 at byte 6");
  EXPECT_EQ(Refusal(FileWithHeader(std::string("{}\0{", 4), kData)),
            "has a NUL at byte 2; expected JSON");
}

TEST(Safetensors, RefusesWrongOffsetsByTensor) {
  const auto refusal = [](const std::string& offsets) {
    return Refusal(FileWithHeader("{" + Tensor("w", offsets) + "}", kData));
  };
  EXPECT_EQ(refusal("[0,8]"), "accepted");
  EXPECT_EQ(refusal("[8,17]"),
            "tensor 'w' has data_offsets [8, 17]; expected begin <= end <= 16, the bytes of data "
            "in the file");
  EXPECT_THAT(refusal("[8,0]"), HasSubstr("tensor 'w' has data_offsets [8, 0]"));
  EXPECT_THAT(refusal("[9223372036854775807,9223372036854775807]"), HasSubstr("tensor 'w' has"));
  EXPECT_THAT(refusal("[0,9223372036854775807]"), HasSubstr("expected begin <= end <= 16"));
  EXPECT_THAT(refusal("[18446744073709551608,8]"),
              HasSubstr("tensor 'w' has 18446744073709551608 in 'data_offsets'"));
  EXPECT_THAT(refusal("[0,18446744073709551616]"), HasSubstr("in 'data_offsets'"));
  EXPECT_THAT(refusal("[-8,8]"), HasSubstr("has -8 in 'data_offsets'; expected two whole"));
  EXPECT_THAT(refusal("[0,8.5]"), HasSubstr("has 8.5 in 'data_offsets'"));
  EXPECT_THAT(refusal("[0,8e0]"), HasSubstr("in 'data_offsets'"));
  EXPECT_THAT(refusal("[0,\"8\"]"), HasSubstr("has '8' in 'data_offsets'"));
  EXPECT_THAT(refusal("[0]"), HasSubstr("tensor 'w' has 1 data_offsets; expected two"));
  EXPECT_THAT(refusal("[]"), HasSubstr("tensor 'w' has 0 data_offsets; expected two"));
  EXPECT_THAT(refusal("[0,4,8]"), HasSubstr("has a longer list in 'data_offsets'"));
  EXPECT_THAT(refusal("[[0],8]"), HasSubstr("has a list in 'data_offsets'"));
  EXPECT_THAT(refusal("{\"a\":8}"), HasSubstr("has a map in 'data_offsets'"));
  EXPECT_THAT(refusal("null"), HasSubstr("has null in 'data_offsets'"));
  EXPECT_THAT(refusal("8"), HasSubstr("has 8 in 'data_offsets'"));
}

TEST(Safetensors, RefusesOverlaps) {
  const auto refusal = [](const std::string& a, const std::string& b) {
    return Refusal(FileWithHeader("{" + Tensor("a", a) + "," + Tensor("b", b) + "}", kData));
  };
  EXPECT_EQ(refusal("[0,8]", "[8,16]"), "accepted");
  EXPECT_EQ(refusal("[8,16]", "[0,8]"), "accepted");
  EXPECT_EQ(refusal("[0,16]", "[4,4]"), "accepted");  // an empty tensor takes no bytes
  EXPECT_EQ(refusal("[0,8]", "[7,15]"), "tensors 'a' and 'b' overlap; expected bytes of their own");
  EXPECT_EQ(refusal("[4,8]", "[0,16]"), "tensors 'b' and 'a' overlap; expected bytes of their own");
  EXPECT_THAT(refusal("[0,8]", "[0,8]"), HasSubstr("overlap"));
}

TEST(Safetensors, RefusesWrongFieldsByTensor) {
  const auto refusal = [](const std::string& tensor) {
    return Refusal(FileWithHeader("{" + tensor + "}", kData));
  };
  EXPECT_EQ(refusal(Tensor("a", "[0,8]") + "," + Tensor("a", "[8,16]")),
            "tensor 'a' stands there twice");
  EXPECT_EQ(refusal(Tensor("a", "[0,8]") + "," + Tensor("\\u0061", "[8,16]")),
            "tensor 'a' stands there twice");
  EXPECT_EQ(refusal(R"("a":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]})"),
            "tensor 'a' has 'dtype' twice");
  EXPECT_EQ(refusal(R"("a":{"dtype":"F32","shape":[2]})"), "tensor 'a' has no 'data_offsets'");
  EXPECT_EQ(refusal(R"("a":{"shape":[2],"data_offsets":[0,8]})"), "tensor 'a' has no 'dtype'");
  EXPECT_EQ(refusal(R"("a":{"dtype":"F32","data_offsets":[0,8]})"), "tensor 'a' has no 'shape'");
  EXPECT_THAT(refusal(R"("a":{"dtype":"F32","stride":[2]})"), HasSubstr("has a field 'stride'"));
  EXPECT_EQ(refusal(R"("a":[])"),
            "tensor 'a' is a list; expected a map of dtype, shape and data_offsets");
  EXPECT_THAT(refusal(R"("a":7)"), HasSubstr("tensor 'a' is 7; expected a map"));
  EXPECT_THAT(refusal(R"("a":"x")"), HasSubstr("tensor 'a' is 'x'; expected a map"));
  EXPECT_THAT(refusal(Tensor("a", "[0,8]", "[2]", "32")),
              HasSubstr("tensor 'a' has 32 in 'dtype'; expected a text"));
  EXPECT_THAT(refusal(Tensor("a", "[0,8]", "[2]", "[\"F32\"]")), HasSubstr("a list in 'dtype'"));
  EXPECT_THAT(refusal(Tensor("a", "[0,8]", "2")), HasSubstr("has 2 in 'shape'; expected a list"));
  EXPECT_THAT(refusal(Tensor("a", "[0,8]", "[-2]")), HasSubstr("has -2 in 'shape'"));
  EXPECT_THAT(refusal(Tensor("a", "[0,8]", "[2.0]")), HasSubstr("has 2.0 in 'shape'"));
  EXPECT_THAT(refusal(Tensor("a", "[0,8]", "[true]")), HasSubstr("has true in 'shape'"));
  EXPECT_THAT(refusal(Tensor("x\\ny", "[8,0]")), HasSubstr("tensor 'x\\x0ay' has"));
  EXPECT_THAT(refusal(R"("__metadata__":{"a":3})"), HasSubstr("has 3 in '__metadata__'"));
  EXPECT_THAT(refusal(R"("__metadata__":{"a":{}})"), HasSubstr("has a map in '__metadata__'"));
  EXPECT_THAT(refusal(R"("__metadata__":[])"), HasSubstr("has a list in '__metadata__'"));
}

std::string Repeat(const std::string& text, int64_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (int64_t i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

TEST(Safetensors, BombsAreRefusedInTime) {
  EXPECT_NE(Refusal(FileWithHeader("{\"a\":" + Repeat("[", 1 << 24), "")), "accepted");
  EXPECT_NE(Refusal(FileWithHeader(Repeat("{\"a\":", 1 << 22), "")), "accepted");
  EXPECT_NE(Refusal(FileWithHeader("{\"" + std::string(1 << 24, 'n'), "")), "accepted");
  const std::string shape = "[" + Repeat("1,", 1 << 22) + "1]";
  EXPECT_THAT(Refusal(FileWithHeader("{" + Tensor("a", "[0,0]", shape) + "}", "")),
              HasSubstr("a longer list in 'shape'"));
}

// As many tensors in as large a header as are read, wrong at the very end; then one more of each.
TEST(Safetensors, LargeHeadersAreReadInTime) {
  std::string header = "{";
  header.reserve(kMaxSafetensorsHeader + 1);
  for (int64_t i = 0; i < kMaxSafetensors - 1; ++i) {
    header += Tensor("model.layers." + std::to_string(i), "[0,0]", "[0]") + ",";
  }
  const std::string more = header;
  header += Tensor("last", "[0,1]") + "}";  // one byte of data that is not there
  header.resize(kMaxSafetensorsHeader, ' ');
  EXPECT_THAT(Refusal(FileWithHeader(header, "")), HasSubstr("tensor 'last' has data_offsets"));
  header += ' ';
  EXPECT_THAT(Refusal(FileWithHeader(header, "")),
              HasSubstr("has a header of 33554433 bytes; expected at most 33554432"));
  EXPECT_EQ(Refusal(FileWithHeader(more + Tensor("a", "[0,0]") + "," + Tensor("b", "[0,0]"), "")),
            "has more than 250000 tensors");
}

// Any byte of a good file replaced, any length cut: an answer, never a crash or a wild offset.
TEST(Safetensors, DamagedFilesGiveEntriesInsideTheFile) {
  const std::string good =
      FileOfTensors({{"a", "F32", {2}, kData.substr(0, 8)}, {"b", "F16", {4}, kData.substr(8)}});
  const auto check = [](const std::string& file) {
    const auto entries = Parse(file);
    if (!entries.ok()) {
      return;
    }
    for (const SafetensorsEntry& entry : *entries) {
      ASSERT_GE(entry.begin, 8);
      ASSERT_LE(entry.begin, entry.end);
      ASSERT_LE(entry.end, static_cast<int64_t>(file.size()));
    }
  };
  for (size_t at = 0; at < good.size(); ++at) {
    check(good.substr(0, at));
    for (const char byte : {'\0', '\x01', '\x7F', '\x80', '\xFF', '"', '{', '}', '[', ']', ',', ':',
                            '-', '0', '9', ' ', '\\'}) {
      std::string damaged = good;
      damaged[at] = byte;
      check(damaged);
    }
  }
}

TEST(Safetensors, MapsAFileAndFindsByName) {
  const TempDir dir;
  const std::string path =
      dir.Write("f.safetensors", FileOfTensors({{"a", "F32", {1}, "aaaa"}, {"b", "U8", {1}, "b"}}));
  const auto file = SafetensorsFile::Open(path).value();
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(file->entries().size(), 2u);
  ASSERT_NE(file->Find("b"), nullptr);
  EXPECT_EQ(*file->data(*file->Find("b")), 'b');
  EXPECT_EQ(file->Find("c"), nullptr);
  const auto bad = SafetensorsFile::Open(dir.Write("bad", "xx"));
  EXPECT_EQ(std::string(bad.status().message()),
            dir.path() + "/bad: has 2 bytes; a safetensors file begins with 8 of length");
}

TEST(Safetensors, OursOfItsDtypes) {
  EXPECT_EQ(DTypeFromSafetensors("F32"), DType::kF32);
  EXPECT_EQ(DTypeFromSafetensors("BF16"), DType::kBF16);
  EXPECT_EQ(DTypeFromSafetensors("F16"), DType::kF16);
  for (const char* other : {"F64", "f32", "", "I8", "F8_E4M3", "F32 "}) {
    EXPECT_EQ(DTypeFromSafetensors(other), std::nullopt) << other;
  }
}

TEST(ShardIndex, ReadsTheMapAndPassesOverTheRest) {
  const auto map = ParseShardIndex(R"({"metadata":{"total_size":12,"x":[1,{"weight_map":null}]},)"
                                   R"("weight_map":{"a":"1.safetensors","b":"2.safetensors"},)"
                                   R"("more":[{"a":"c"}]})")
                       .value();
  EXPECT_EQ(map.size(), 2u);
  EXPECT_EQ(map.at("a"), "1.safetensors");
  EXPECT_EQ(map.at("b"), "2.safetensors");
}

TEST(ShardIndex, RefusesWrongMaps) {
  const auto refusal = [](const std::string& text) {
    const auto map = ParseShardIndex(text);
    return map.ok() ? "accepted" : std::string(map.status().message());
  };
  EXPECT_EQ(refusal("{}"), "has no 'weight_map'; expected an index of shards");
  EXPECT_THAT(refusal("[]"), HasSubstr("is a list; expected a map with 'weight_map'"));
  EXPECT_THAT(refusal("3"), HasSubstr("is 3; expected a map with 'weight_map'"));
  EXPECT_THAT(refusal("\"x\""), HasSubstr("is 'x'; expected a map"));
  EXPECT_THAT(refusal(""), HasSubstr("is not JSON"));
  EXPECT_THAT(refusal(R"({"weight_map":[]})"), HasSubstr("'weight_map' is a list"));
  EXPECT_THAT(refusal(R"({"weight_map":"x"})"), HasSubstr("'weight_map' is 'x'"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":3}})"),
              HasSubstr("tensor 'a' is 3; expected the name"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":{"b":"c"}}})"), HasSubstr("tensor 'a' is a map"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":["b"]}})"), HasSubstr("tensor 'a' is a list"));
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"x","a":"y"}})"),
            "tensor 'a' stands in 'weight_map' twice");
  EXPECT_EQ(refusal(R"({"weight_map":{},"weight_map":{}})"), "has 'weight_map' twice");
  EXPECT_THAT(refusal("{\"weight_map\":{\"\xFF\":\"x\"}}"), HasSubstr("is not UTF-8"));
  EXPECT_THAT(refusal(Repeat("{\"a\":", 1 << 20)), HasSubstr("is not JSON"));
  std::string many = R"({"weight_map":{)";
  for (int64_t i = 0; i <= kMaxSafetensors; ++i) {
    many += "\"" + std::to_string(i) + "\":\"\",";
  }
  EXPECT_EQ(refusal(many), "has more than 250000 tensors");
}

}  // namespace
}  // namespace attnd
