// Reads forward over bytes that lie in pieces: what a message of gRPC is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnd::server {

// Every read fails, and may have moved, when there are too few bytes.
class SliceCursor {
 public:
  // `pieces` outlives the cursor.
  explicit SliceCursor(const std::vector<std::string_view>& pieces);

  // Bytes not read yet.
  size_t left() const { return left_; }

  bool ReadByte(uint8_t* byte);
  // At most 10 bytes, as protobuf takes them; they are appended to `raw`.
  bool ReadVarint(uint64_t* value, std::string* raw);
  // Appends `n` bytes to `to`.
  bool Copy(size_t n, std::string* to);
  // Appends views of `n` bytes to `to`, none empty.
  bool Point(size_t n, std::vector<std::string_view>* to);

 private:
  // The next bytes, at most `most` of them and at least one; left_ >= 1.
  std::string_view Next(size_t most);

  const std::vector<std::string_view>& pieces_;
  size_t index_ = 0;       // of the piece after rest_
  std::string_view rest_;  // what is left of the present piece
  size_t left_ = 0;
};

}  // namespace attnd::server
