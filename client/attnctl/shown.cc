// Text from outside: what could steer a terminal becomes \xNN.
#include "client/attnctl/shown.h"

#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/text.h"

namespace attnd::attnctl {
namespace {

// The characters that turn the direction of what follows: U+202A to U+202E, U+2066 to U+2069.
bool Turns(std::string_view text, size_t at) {
  const std::string_view three = text.substr(at, 3);
  return (three >= "\xE2\x80\xAA" && three <= "\xE2\x80\xAE") ||
         (three >= "\xE2\x81\xA6" && three <= "\xE2\x81\xA9");
}

}  // namespace

std::string Shown(std::string_view text) {
  constexpr size_t kWhole = std::numeric_limits<size_t>::max();
  std::string shown;
  size_t begin = 0;
  const auto add_up_to = [&](size_t end) {
    shown += Printable(text.substr(begin, end - begin), kWhole);
    begin = end;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\') {
      add_up_to(at);
      shown += '\\';
      begin = at + 1;
    } else if (text[at] == '\xE2' && Turns(text, at)) {
      add_up_to(at);
      for (; begin < at + 3; ++begin) {  // a byte of it alone is not UTF-8
        shown += Printable(text.substr(begin, 1), kWhole);
      }
      at += 2;
    }
  }
  add_up_to(text.size());
  return shown;
}

}  // namespace attnd::attnctl
