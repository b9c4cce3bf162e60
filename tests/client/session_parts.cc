#include "tests/client/session_parts.h"

#include <xxhash.h>

namespace attnd::client {

std::string DigestOf(const v1::SessionHeader& header, const std::string& data) {
  const std::string all = header.SerializeAsString() + data;
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  std::string digest;
  for (const XXH64_hash_t half : {hash.high64, hash.low64}) {
    for (int shift = 56; shift >= 0; shift -= 8) {
      digest.push_back(static_cast<char>(half >> shift & 0xFF));
    }
  }
  return digest;
}

std::vector<v1::SessionChunk> PartsOf(const v1::SessionHeader& header, const std::string& data,
                                      size_t chunk_bytes) {
  std::vector<v1::SessionChunk> parts(1);
  *parts[0].mutable_header() = header;
  for (size_t begin = 0; begin < data.size(); begin += chunk_bytes) {
    parts.emplace_back().set_data(data.substr(begin, chunk_bytes));
  }
  parts.emplace_back().set_digest(DigestOf(header, data));
  return parts;
}

}  // namespace attnd::client
