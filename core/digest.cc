// XXH3 of 128 bits.
#include "core/digest.h"

#include <xxhash.h>

#include "absl/strings/escaping.h"
#include "kernels/check.h"

namespace attnd {

struct Digest::State {
  State() : xxh(XXH3_createState()) {
    Check(xxh != nullptr, "memory for a digest of 600 bytes");
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  XXH3_state_t* const xxh;
};

Digest::Digest() : state_(std::make_unique<State>()) {}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::Add(std::string_view bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string Digest::Bytes() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh));
  return {reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)};
}

std::string Digest::Hex() const {
  const std::string bytes = Bytes();
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

}  // namespace attnd
