// The two JSON texts of safetensors, read event by event: no tree is built, nesting costs no
// stack, and a name that stands there twice is seen.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "core/safetensors.h"

namespace attnd {

// The entries of a header; offsets are non-negative, still relative to the data section and not
// compared with anything. Padding after the object may be spaces.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsJson(std::string_view header);

// The "weight_map" of an index of shards: tensor name to file name, as the text has it.
absl::StatusOr<std::unordered_map<std::string, std::string>> ParseShardIndex(std::string_view text);

}  // namespace attnd
