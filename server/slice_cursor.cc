// Reads forward over bytes that lie in pieces.
#include "server/slice_cursor.h"

#include <algorithm>

namespace attnd::server {

SliceCursor::SliceCursor(const std::vector<std::string_view>& pieces) : pieces_(pieces) {
  for (std::string_view piece : pieces) {
    left_ += piece.size();
  }
}

std::string_view SliceCursor::Next(size_t most) {
  while (rest_.empty()) {
    rest_ = pieces_[index_++];
  }
  const std::string_view next = rest_.substr(0, most);
  rest_.remove_prefix(next.size());
  left_ -= next.size();
  return next;
}

bool SliceCursor::ReadByte(uint8_t* byte) {
  if (left_ == 0) {
    return false;
  }
  *byte = static_cast<uint8_t>(Next(1).front());
  return true;
}

bool SliceCursor::ReadVarint(uint64_t* value, std::string* raw) {
  constexpr int kMostBytes = 10;
  *value = 0;
  for (int i = 0; i < kMostBytes; ++i) {
    uint8_t byte = 0;
    if (!ReadByte(&byte)) {
      return false;
    }
    raw->push_back(static_cast<char>(byte));
    *value |= uint64_t{byte & 0x7FU} << (7 * i);
    if (byte < 0x80) {
      return true;
    }
  }
  return false;
}

bool SliceCursor::Copy(size_t n, std::string* to) {
  if (n > left_) {
    return false;
  }
  while (n > 0) {
    const std::string_view next = Next(n);
    to->append(next);
    n -= next.size();
  }
  return true;
}

bool SliceCursor::Point(size_t n, std::vector<std::string_view>* to) {
  if (n > left_) {
    return false;
  }
  while (n > 0) {
    to->push_back(Next(n));
    n -= to->back().size();
  }
  return true;
}

}  // namespace attnd::server
