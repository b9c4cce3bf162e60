// Text from outside as a terminal may show it.
#pragma once

#include <string>
#include <string_view>

namespace attnd::attnctl {

// `text` on one line, without what steers a terminal or turns the direction of writing: these bytes
// become \xNN. A backslash stays, so that text that was made printable before is not changed.
std::string Shown(std::string_view text);

}  // namespace attnd::attnctl
