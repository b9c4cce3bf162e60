// A session's parts with the right digest, computed here and not by the library's own code.
#pragma once

#include <string>
#include <vector>

#include "attnd/v1/attnd.pb.h"

namespace attnd::client {

// The header, the data in parts of at most `chunk_bytes`, and the digest.
std::vector<v1::SessionChunk> PartsOf(const v1::SessionHeader& header, const std::string& data,
                                      size_t chunk_bytes);

// XXH3-128 of the serialized header and the data, its most significant byte first.
std::string DigestOf(const v1::SessionHeader& header, const std::string& data);

}  // namespace attnd::client
