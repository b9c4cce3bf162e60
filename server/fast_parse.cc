// Requests off the wire's slices.
#include "server/fast_parse.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "google/protobuf/wire_format_lite.h"
#include "server/slice_cursor.h"
#include "server/varint.h"

namespace attnd::server {
namespace {

using google::protobuf::internal::WireFormatLite;

// The messages on the way, outermost first.
enum class Level : uint8_t { kStep, kCall, kTensor };

constexpr int kHiddenField = 15;
static_assert(v1::PrefillRequest::kHiddenFieldNumber == kHiddenField);
static_assert(v1::DecodeRequest::kHiddenFieldNumber == kHiddenField);

// Longer ones are not what clients send; they are not worth a third copy.
constexpr uint64_t kMostBesideTheWay = 4096;
// Of a message whose shape the walk does not know. Parsed, two bytes of it can take 80.
constexpr size_t kMostWhole = size_t{1} << 20;
// Sequences that a Decode may have beyond one for each row of its tensor: refused by validation,
// with their index; more are not parsed at all.
constexpr int64_t kSequencesToSpare = 1024;

constexpr int kSequencesField = v1::DecodeRequest::kSequencesFieldNumber;

bool OnTheWay(Level level, int field) {
  switch (level) {
    case Level::kStep:
      return field == v1::StepRequest::kPrefillFieldNumber ||
             field == v1::StepRequest::kDecodeFieldNumber;
    case Level::kCall:
      return field == kHiddenField;
    case Level::kTensor:
      return field == v1::Tensor::kDataFieldNumber;
  }
  return false;
}

// Splits a message: the bytes of its tensor into `pieces`, the others, with the lengths of the
// messages around them made shorter, into a head.
class Walker {
 public:
  Walker(const std::vector<std::string_view>& slices, std::vector<std::string_view>* pieces)
      : cursor_(slices), pieces_(pieces) {}

  // The whole message. False for a shape that is not known.
  bool Walk(Level level, std::string* head) { return Message(level, cursor_.left(), head); }

  int64_t sequences() const { return sequences_; }

 private:
  bool Message(Level level, size_t length, std::string* head);
  bool Tag(std::string* raw, uint32_t* tag);
  // A field with a length, from its length on, and one without.
  bool Delimited(Level level, int field, size_t room, std::string* head);
  bool Scalar(WireFormatLite::WireType type, std::string* head);

  SliceCursor cursor_;
  std::vector<std::string_view>* const pieces_;
  int64_t sequences_ = 0;
};

bool Walker::Tag(std::string* raw, uint32_t* tag) {
  uint64_t value = 0;
  if (!cursor_.ReadVarint(&value, raw) || value > UINT32_MAX || value >> 3 == 0) {
    return false;
  }
  *tag = static_cast<uint32_t>(value);
  std::string shortest;
  AppendVarint(value, &shortest);
  return *raw == shortest;
}

bool Walker::Delimited(Level level, int field, size_t room, std::string* head) {
  constexpr size_t kMostBytes = 5;  // of a length, for protobuf
  uint64_t length = 0;
  std::string raw;
  if (!cursor_.ReadVarint(&length, &raw) || raw.size() > std::min(room, kMostBytes) ||
      length > room - raw.size()) {
    return false;
  }
  if (!OnTheWay(level, field)) {
    sequences_ += level == Level::kCall && field == kSequencesField ? 1 : 0;
    AppendFieldStart(field, length, head);
    return length <= kMostBesideTheWay && cursor_.Copy(length, head);
  }
  if (level == Level::kTensor) {
    return cursor_.Point(length, pieces_);
  }
  std::string inner;
  const auto next = static_cast<Level>(static_cast<int>(level) + 1);
  if (!Message(next, length, &inner)) {
    return false;
  }
  AppendFieldStart(field, inner.size(), head);
  head->append(inner);
  return true;
}

bool Walker::Scalar(WireFormatLite::WireType type, std::string* head) {
  uint64_t value = 0;
  return type == WireFormatLite::WIRETYPE_VARINT    ? cursor_.ReadVarint(&value, head)
         : type == WireFormatLite::WIRETYPE_FIXED64 ? cursor_.Copy(8, head)
         : type == WireFormatLite::WIRETYPE_FIXED32 ? cursor_.Copy(4, head)
                                                    : false;
}

bool Walker::Message(Level level, size_t length, std::string* head) {
  const size_t end = cursor_.left() - length;  // what is left after the message
  bool seen = false;
  while (cursor_.left() > end) {
    std::string raw;
    uint32_t tag = 0;
    if (!Tag(&raw, &tag) || cursor_.left() < end) {
      return false;
    }
    const auto field = static_cast<int>(tag >> 3);
    const auto type = WireFormatLite::GetTagWireType(tag);
    if (type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (OnTheWay(level, field) && std::exchange(seen, true)) {
        return false;
      }
      if (!Delimited(level, field, cursor_.left() - end, head)) {
        return false;
      }
      continue;
    }
    head->append(raw);
    if (!Scalar(type, head)) {
      return false;
    }
  }
  return cursor_.left() == end;
}

v1::Tensor* Hidden(v1::PrefillRequest* request) {
  return request->has_hidden() ? request->mutable_hidden() : nullptr;
}
v1::Tensor* Hidden(v1::DecodeRequest* request) {
  return request->has_hidden() ? request->mutable_hidden() : nullptr;
}
v1::Tensor* Hidden(v1::StepRequest* request) {
  return request->has_prefill()  ? Hidden(request->mutable_prefill())
         : request->has_decode() ? Hidden(request->mutable_decode())
                                 : nullptr;
}

// The generated parser, on bytes in one piece: so bounded it reserves no more than is there, and
// gRPC's ProtoBufferReader aborts where protobuf backs up over slices shorter than 16 bytes.
template <typename Request>
bool ParseWhole(grpc::ByteBuffer* bytes, Request* request, TensorBytes* hidden) {
  grpc::Slice whole;
  const bool there = bytes->TrySingleSlice(&whole).ok() || bytes->DumpToSingleSlice(&whole).ok();
  bytes->Clear();
  if (!there || !request->ParseFromArray(whole.begin(), static_cast<int>(whole.size()))) {
    return false;
  }
  if (v1::Tensor* tensor = Hidden(request); tensor != nullptr) {
    hidden->parsed = std::move(*tensor->mutable_data());
    tensor->clear_data();
    hidden->pieces.assign(1, hidden->parsed);
  }
  return true;
}

int64_t SizeOf(const std::vector<std::string_view>& pieces) {
  int64_t size = 0;
  for (std::string_view piece : pieces) {
    size += static_cast<int64_t>(piece.size());
  }
  return size;
}

absl::Status TooManySequences(int64_t sequences, int64_t data_bytes, int64_t row_bytes) {
  return MakeError(Reason::kBadBatch,
                   absl::StrCat("sequences: ", sequences, ", but hidden.data has ", data_bytes,
                                " bytes, of which a row takes ", row_bytes, " or more"));
}

template <typename Request>
absl::Status Parse(grpc::ByteBuffer* bytes, Level level, int64_t row_bytes, Request* request,
                   TensorBytes* hidden, size_t small) {
  const size_t length = bytes->Length();
  const auto refusal = [&](std::string_view why) {
    return MakeError(Reason::kBadArgument,
                     absl::StrCat("the message's ", length, " bytes ", std::string(why),
                                  "; expected ", request->GetTypeName()));
  };
  if (length <= small) {
    const bool parsed = ParseWhole(bytes, request, hidden);
    hidden->size = SizeOf(hidden->pieces);
    return parsed ? absl::OkStatus() : refusal("do not parse");
  }
  if (!bytes->Valid() || !bytes->Dump(&hidden->slices).ok()) {
    return refusal("do not parse");  // a call without a message
  }
  std::vector<std::string_view> all;
  all.reserve(hidden->slices.size());
  for (const grpc::Slice& slice : hidden->slices) {
    all.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  Walker walker(all, &hidden->pieces);
  std::string head;
  if (walker.Walk(level, &head)) {
    bytes->Clear();
    const int64_t size = SizeOf(hidden->pieces);
    if (walker.sequences() > kSequencesToSpare + size / row_bytes) {
      return TooManySequences(walker.sequences(), size, row_bytes);
    }
    if (!request->ParseFromString(head)) {
      return refusal("do not parse");
    }
    if (Hidden(request) == nullptr) {  // another kind of step came after it
      hidden->pieces.clear();
    }
  } else {
    hidden->slices.clear();
    hidden->pieces.clear();
    if (length > kMostWhole) {
      bytes->Clear();
      return refusal(
          "do not parse, or not as clients lay them out (beyond 1 MiB no field may come "
          "twice, have 4 KiB or be a group)");
    }
    if (!ParseWhole(bytes, request, hidden)) {
      return refusal("do not parse");
    }
  }
  hidden->size = SizeOf(hidden->pieces);
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseRequest(grpc::ByteBuffer* bytes, int64_t row_bytes, v1::PrefillRequest* request,
                          TensorBytes* hidden, size_t small) {
  return Parse(bytes, Level::kCall, row_bytes, request, hidden, small);
}

absl::Status ParseRequest(grpc::ByteBuffer* bytes, int64_t row_bytes, v1::DecodeRequest* request,
                          TensorBytes* hidden, size_t small) {
  return Parse(bytes, Level::kCall, row_bytes, request, hidden, small);
}

absl::Status ParseRequest(grpc::ByteBuffer* bytes, int64_t row_bytes, v1::StepRequest* request,
                          TensorBytes* hidden, size_t small) {
  return Parse(bytes, Level::kStep, row_bytes, request, hidden, small);
}

}  // namespace attnd::server
