// Lengths and tags of protobuf's wire format, where our own code writes them.
#pragma once

#include <cstdint>
#include <string>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace attnd::server {

inline void AppendVarint(uint64_t value, std::string* to) {
  uint8_t bytes[10];
  const uint8_t* end = google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(value, bytes);
  to->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(end - bytes));
}

// What comes before `length` bytes of field number `field`: a message, a string or bytes.
inline void AppendFieldStart(int field, uint64_t length, std::string* to) {
  using google::protobuf::internal::WireFormatLite;
  AppendVarint(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED), to);
  AppendVarint(length, to);
}

// The field number `field`, an integer; not there when it is 0, as proto3 has it.
inline void AppendInteger(int field, int64_t value, std::string* to) {
  using google::protobuf::internal::WireFormatLite;
  if (value != 0) {
    AppendVarint(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_VARINT), to);
    AppendVarint(static_cast<uint64_t>(value), to);
  }
}

}  // namespace attnd::server
