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

// Takes a message of `length` bytes: those of the tensor into `pieces`, the others, with the
// lengths of the messages around them made shorter, into `head`. False for a shape that is not
// known.
bool Walk(Level level, size_t length, SliceCursor* cursor, std::string* head,
          std::vector<std::string_view>* pieces);

// A field with a length, from its length on.
bool WalkField(Level level, int field, size_t room, SliceCursor* cursor, std::string* head,
               std::vector<std::string_view>* pieces) {
  constexpr size_t kMostBytes = 5;  // of a length, for protobuf
  uint64_t length = 0;
  std::string raw;
  if (!cursor->ReadVarint(&length, &raw) || raw.size() > std::min(room, kMostBytes) ||
      length > room - raw.size()) {
    return false;
  }
  if (!OnTheWay(level, field)) {
    AppendFieldStart(field, length, head);
    return length <= kMostBesideTheWay && cursor->Copy(length, head);
  }
  if (level == Level::kTensor) {
    return cursor->Point(length, pieces);
  }
  std::string inner;
  const auto next = static_cast<Level>(static_cast<int>(level) + 1);
  if (!Walk(next, length, cursor, &inner, pieces)) {
    return false;
  }
  AppendFieldStart(field, inner.size(), head);
  head->append(inner);
  return true;
}

bool Walk(Level level, size_t length, SliceCursor* cursor, std::string* head,
          std::vector<std::string_view>* pieces) {
  const size_t end = cursor->left() - length;  // what is left after the message
  bool seen = false;
  while (cursor->left() > end) {
    uint8_t tag = 0;
    if (!cursor->ReadByte(&tag) || tag >= 0x80 || tag >> 3 == 0) {
      return false;
    }
    const int field = tag >> 3;
    const auto type = WireFormatLite::GetTagWireType(tag);
    if (type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (OnTheWay(level, field) && std::exchange(seen, true)) {
        return false;
      }
      if (!WalkField(level, field, cursor->left() - end, cursor, head, pieces)) {
        return false;
      }
      continue;
    }
    head->push_back(static_cast<char>(tag));
    uint64_t value = 0;
    const bool known = type == WireFormatLite::WIRETYPE_VARINT    ? cursor->ReadVarint(&value, head)
                       : type == WireFormatLite::WIRETYPE_FIXED64 ? cursor->Copy(8, head)
                       : type == WireFormatLite::WIRETYPE_FIXED32 ? cursor->Copy(4, head)
                                                                  : false;
    if (!known) {
      return false;
    }
  }
  return cursor->left() == end;
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
  const bool dumped = bytes->DumpToSingleSlice(&whole).ok();
  bytes->Clear();
  if (!dumped || !request->ParseFromArray(whole.begin(), static_cast<int>(whole.size()))) {
    return false;
  }
  if (v1::Tensor* tensor = Hidden(request); tensor != nullptr) {
    hidden->parsed = std::move(*tensor->mutable_data());
    tensor->clear_data();
    hidden->pieces.assign(1, hidden->parsed);
  }
  return true;
}

template <typename Request>
bool Parse(grpc::ByteBuffer* bytes, Level level, Request* request, TensorBytes* hidden) {
  if (!bytes->Valid() || !bytes->Dump(&hidden->slices).ok()) {
    return false;  // a call without a message
  }
  std::vector<std::string_view> all;
  all.reserve(hidden->slices.size());
  for (const grpc::Slice& slice : hidden->slices) {
    all.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  SliceCursor cursor(all);
  std::string head;
  if (Walk(level, cursor.left(), &cursor, &head, &hidden->pieces)) {
    bytes->Clear();
    if (!request->ParseFromString(head)) {
      return false;
    }
    if (Hidden(request) == nullptr) {  // another kind of step came after it
      hidden->pieces.clear();
    }
  } else {
    hidden->slices.clear();
    hidden->pieces.clear();
    if (!ParseWhole(bytes, request, hidden)) {
      return false;
    }
  }
  for (std::string_view piece : hidden->pieces) {
    hidden->size += static_cast<int64_t>(piece.size());
  }
  return true;
}

template <typename Request>
absl::Status ParseOrSay(grpc::ByteBuffer* bytes, Level level, Request* request,
                        TensorBytes* hidden) {
  const size_t length = bytes->Length();
  if (Parse(bytes, level, request, hidden)) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kBadArgument,
                   absl::StrCat("the message's ", length, " bytes do not parse; expected ",
                                request->GetTypeName()));
}

}  // namespace

absl::Status ParseRequest(grpc::ByteBuffer* bytes, v1::PrefillRequest* request,
                          TensorBytes* hidden) {
  return ParseOrSay(bytes, Level::kCall, request, hidden);
}

absl::Status ParseRequest(grpc::ByteBuffer* bytes, v1::DecodeRequest* request,
                          TensorBytes* hidden) {
  return ParseOrSay(bytes, Level::kCall, request, hidden);
}

absl::Status ParseRequest(grpc::ByteBuffer* bytes, v1::StepRequest* request, TensorBytes* hidden) {
  return ParseOrSay(bytes, Level::kStep, request, hidden);
}

}  // namespace attnd::server
