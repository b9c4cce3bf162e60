// XXH3 of 128 bits, for bytes that come in pieces: finds damage, not malice.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace attnd {

class Digest {
 public:
  Digest();
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void Add(std::string_view bytes);
  // Of all bytes so far: 16 bytes in the canonical (big-endian) order, or 32 hexadecimal digits.
  std::string Bytes() const;
  std::string Hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attnd
