// Text from outside in one-line messages, and the nearest known name of a misspelt one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnd {

// The offset of the first byte that does not continue valid UTF-8; text.size() when all is valid.
size_t FirstInvalidUtf8(std::string_view text);

// `text` on one line: control characters, backslashes and bytes that are not UTF-8 become \xNN;
// after about `limit` bytes it ends in "...".
std::string Printable(std::string_view text, size_t limit = 1000);

// Likewise, short and in single quotes: 'd_modle'.
std::string Quoted(std::string_view text);

// The known name with the fewest edits to `word`, the first of equals; `known` is not empty. Of
// `word` only the first 64 bytes count.
std::string Nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace attnd
