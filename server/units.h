// Sizes and durations as flags write them: "8GiB", "512MiB", "4096"; "10m", "24h", "1.5s".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace attnd::server {

// Bytes: digits with an optional decimal fraction and B, KiB, MiB, GiB or TiB. nullopt when the
// text is none of that, negative or beyond int64.
std::optional<int64_t> ParseBytes(const std::string& text);

// Nanoseconds: a decimal number with ns, us, ms, s, m or h. A bare number has no unit and is
// refused, so that "10" is never taken for the wrong thing.
std::optional<int64_t> ParseDuration(const std::string& text);

// The shortest text that ParseBytes and ParseDuration read back as the same value.
std::string FormatBytes(int64_t bytes);
std::string FormatDuration(int64_t nanoseconds);

}  // namespace attnd::server
