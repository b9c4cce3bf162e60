// UTF-8, quoting and edit distance for messages about input.
#include "core/text.h"

#include <algorithm>

#include "kernels/check.h"

namespace attnd {
namespace {

// Bytes of the valid UTF-8 sequence at the start of `text`, 0 if there is none. Overlong forms,
// surrogates and values above U+10FFFF are not valid.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto continues = [&](size_t n) {
    if (text.size() < n) {
      return false;
    }
    for (size_t i = 1; i < n; ++i) {
      if ((byte(i) & 0xC0) != 0x80) {
        return false;
      }
    }
    return true;
  };
  const uint8_t first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  if (first >= 0xC2 && first <= 0xDF) {
    return continues(2) ? 2 : 0;
  }
  if (first >= 0xE0 && first <= 0xEF) {
    if (!continues(3) || (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) {
      return 0;
    }
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!continues(4) || (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) {
      return 0;
    }
    return 4;
  }
  return 0;
}

void AppendEscaped(uint8_t byte, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  *out += "\\x";
  *out += kHex[byte >> 4];
  *out += kHex[byte & 15];
}

int64_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<int64_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    row[j] = static_cast<int64_t>(j);
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

size_t FirstInvalidUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = Utf8Length(text.substr(at));
    if (length == 0) {
      return at;
    }
    at += length;
  }
  return at;
}

std::string Printable(std::string_view text, size_t limit) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    if (out.size() >= limit) {
      return out + "...";
    }
    const uint8_t byte = static_cast<uint8_t>(text[at]);
    const size_t length = Utf8Length(text.substr(at));
    // U+0080..U+009F are control characters too, U+2028 and U+2029 break lines.
    const bool control = byte < 0x20 || byte == 0x7F || byte == '\\' ||
                         (length == 2 && byte == 0xC2 && static_cast<uint8_t>(text[at + 1]) < 0xA0);
    const bool breaks = length == 3 && (text.substr(at, 3) == "\xE2\x80\xA8" ||
                                        text.substr(at, 3) == "\xE2\x80\xA9");
    if (length == 0 || control || breaks) {
      AppendEscaped(byte, &out);
      ++at;
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out;
}

std::string Quoted(std::string_view text) { return "'" + Printable(text, 120) + "'"; }

std::string Nearest(std::string_view word, const std::vector<std::string>& known) {
  Check(!known.empty(), "there is a name to be near to");
  word = word.substr(0, 64);
  return *std::min_element(known.begin(), known.end(),
                           [&](const std::string& a, const std::string& b) {
                             return EditDistance(word, a) < EditDistance(word, b);
                           });
}

}  // namespace attnd
