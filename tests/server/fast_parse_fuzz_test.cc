// The fast reader against the generated parser: random messages, well formed and damaged, cut
// anywhere. ATTND_FUZZ_SEED repeats a run.
#include <cstdlib>
#include <iostream>
#include <random>

#include "google/protobuf/stubs/logging.h"
#include "server/fast_parse.h"
#include "server/varint.h"
#include "tests/server/wire_bytes.h"

namespace attnd::server {
namespace {

constexpr int64_t kRowBytes = 2;

constexpr int kMessages = 300'000;

// Writes messages field by field, so that all that the wire format allows comes up: any order,
// repetitions, unknown fields, other wire types, groups, integers longer than need be.
class Writer {
 public:
  explicit Writer(uint64_t seed) : random_(seed) {}

  std::string Step() {
    return Fields([this](std::string* to) {
      switch (Below(8)) {
        case 0:
          return Varint(1, to);
        case 1:
        case 2:
          return Nested(2, Prefill(), to);
        case 3:
        case 4:
          return Nested(3, Decode(), to);
        case 5:
          return Nested(4, Fields([this](std::string* inner) { Varint(1, inner); }), to);
        case 6:
          return Varint(5, to);
        default:
          return Unknown(to);
      }
    });
  }

  std::string Prefill() {
    return Fields([this](std::string* to) {
      switch (Below(6)) {
        case 0:
          return Nested(1, Text(), to);
        case 1:
        case 2:
          return Varint(2 + Below(6), to);
        case 3:
        case 4:
          return Nested(15, Tensor(), to);
        default:
          return Unknown(to);
      }
    });
  }

  std::string Decode() {
    return Fields([this](std::string* to) {
      switch (Below(6)) {
        case 0:
          return Varint(Below(2) == 0 ? 1 : 3, to);
        case 1:
        case 2:
          return Nested(2, Fields([this](std::string* inner) {
                          Below(2) == 0 ? Nested(1, Text(), inner) : Varint(2 + Below(4), inner);
                        }),
                        to);
        case 3:
        case 4:
          return Nested(15, Tensor(), to);
        default:
          return Unknown(to);
      }
    });
  }

  void Damage(std::string* bytes) {
    const auto place = [&] { return static_cast<size_t>(Below(static_cast<int>(bytes->size()))); };
    for (int n = Below(3); n > 0 && !bytes->empty(); --n) {
      switch (Below(6)) {
        case 0:
          (*bytes)[place()] = static_cast<char>(random_());
          break;
        case 1:
          (*bytes)[place()] ^= static_cast<char>(1 << Below(8));
          break;
        case 2:
          bytes->insert(place(), 1, static_cast<char>(random_()));
          break;
        case 3:
          bytes->erase(place(), static_cast<size_t>(1 + Below(4)));
          break;
        case 4:
          bytes->resize(place());
          break;
        default:
          bytes->insert(place(), bytes->substr(place(), static_cast<size_t>(1 + Below(20))));
      }
    }
  }

  std::mt19937_64* random() { return &random_; }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  template <typename Field>
  std::string Fields(Field field) {
    std::string bytes;
    for (int n = Below(6); n > 0; --n) {
      field(&bytes);
    }
    return bytes;
  }

  std::string Tensor() {
    return Fields([this](std::string* to) {
      switch (Below(8)) {
        case 0:
          return Varint(1, to);
        case 1:
          return Varint(2, to);
        case 2:
        case 3:
          return Nested(2, std::string("\x05\x80\x01"), to);
        case 4:
        case 5:
        case 6:
          return Nested(15, std::string(static_cast<size_t>(Below(40)), 'd'), to);
        default:
          return Unknown(to);
      }
    });
  }

  std::string Text() {
    constexpr const char* kTexts[] = {"", "abc", "\xc3\xa4", "\xff\xfe", "a-session-of-a-client"};
    return kTexts[Below(5)];
  }

  // An integer, sometimes with more bytes than it needs.
  void Integer(uint64_t value, std::string* to) {
    AppendVarint(value, to);
    if (Below(12) == 0) {
      to->back() = static_cast<char>(to->back() | 0x80);
      to->append(static_cast<size_t>(Below(10)), '\x80');
      to->push_back('\0');
    }
  }

  void Varint(int field, std::string* to) {
    Integer(static_cast<uint64_t>(field) << 3, to);
    Integer(random_() >> Below(64), to);
  }

  void Nested(int field, const std::string& inner, std::string* to) {
    Integer(static_cast<uint64_t>(field) << 3 | 2, to);
    Integer(inner.size(), to);
    to->append(inner);
  }

  void Unknown(std::string* to) {
    const int field = 1 + Below(20);
    const auto tag = static_cast<uint64_t>(field) << 3;
    switch (Below(5)) {
      case 0:
        return Varint(field, to);
      case 1:
        return Nested(field,
                      std::string(static_cast<size_t>(Below(Below(8) == 0 ? 5000 : 20)), 'u'), to);
      case 2:
        AppendVarint(tag | 1, to);
        return static_cast<void>(to->append(8, 'x'));
      case 3:
        AppendVarint(tag | 5, to);
        return static_cast<void>(to->append(4, 'x'));
      default:
        AppendVarint(tag | 3, to);
        Varint(1 + Below(20), to);
        AppendVarint(tag | 4, to);
    }
  }

  std::mt19937_64 random_;
};

std::string TakeData(v1::Tensor* tensor) {
  std::string data = tensor->data();
  tensor->clear_data();
  return data;
}
template <typename Request>
std::string TakeData(Request* request) {
  return request->has_hidden() ? TakeData(request->mutable_hidden()) : "";
}
std::string TakeData(v1::StepRequest* request) {
  return request->has_prefill()  ? TakeData(request->mutable_prefill())
         : request->has_decode() ? TakeData(request->mutable_decode())
                                 : "";
}

struct Counts {
  int accepted = 0;
  int fast = 0;
};

template <typename Request>
void Compare(const std::string& bytes, std::mt19937_64* random, Counts* counts) {
  Request expected;
  const bool parses = expected.ParseFromString(bytes);
  Request request;
  TensorBytes hidden;
  grpc::ByteBuffer buffer = CutBuffer(bytes, random);
  ASSERT_EQ(ParseRequest(&buffer, kRowBytes, &request, &hidden, /*small=*/0).ok(), parses);
  if (!parses) {
    return;
  }
  ++counts->accepted;
  counts->fast += hidden.slices.empty() && !bytes.empty() ? 0 : 1;
  ASSERT_EQ(Bytes(hidden), TakeData(&expected));
  ASSERT_EQ(hidden.size, static_cast<int64_t>(Bytes(hidden).size()));
  ASSERT_EQ(request.SerializeAsString(), expected.SerializeAsString());
}

TEST(FastParseFuzzTest, EqualsTheGeneratedParser) {
  const char* given = std::getenv("ATTND_FUZZ_SEED");
  const uint64_t seed = given == nullptr ? std::random_device{}() : std::stoull(given);
  std::cout << "ATTND_FUZZ_SEED=" << seed << "\n";
  const google::protobuf::LogSilencer silencer;  // strings that are not UTF-8
  Writer writer(seed);
  Counts counts;
  for (int i = 0; i < kMessages; ++i) {
    const int kind = i % 3;
    std::string bytes = kind == 0 ? writer.Prefill() : kind == 1 ? writer.Decode() : writer.Step();
    writer.Damage(&bytes);
    if (kind == 0) {
      Compare<v1::PrefillRequest>(bytes, writer.random(), &counts);
    } else if (kind == 1) {
      Compare<v1::DecodeRequest>(bytes, writer.random(), &counts);
    } else {
      Compare<v1::StepRequest>(bytes, writer.random(), &counts);
    }
    ASSERT_FALSE(HasFatalFailure()) << "message " << i << " of ATTND_FUZZ_SEED=" << seed;
  }
  // Both ways and both outcomes were compared, not a corner of them.
  EXPECT_GT(counts.accepted, kMessages / 4);
  EXPECT_LT(counts.accepted, kMessages * 9 / 10);
  EXPECT_GT(counts.fast, kMessages / 20);
  EXPECT_GT(counts.accepted - counts.fast, kMessages / 20);
}

}  // namespace
}  // namespace attnd::server
