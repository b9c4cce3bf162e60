// What attnctl top shows, as lines of text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "client/attnctl/top_view.h"

namespace attnd::attnctl {

enum class Ink { kPlain, kTitle, kDim, kGood, kWarning, kBad };
struct Words {
  std::string text;
  Ink ink = Ink::kPlain;
};
using Line = std::vector<Words>;

struct TopFrame {
  std::vector<ServerView> servers;
  double interval_s = 0;
  double unix_time_s = 0;
};

// A server at length; several as a row each, and their total at length.
std::vector<Line> TopLines(const TopFrame& frame);

// Lines of text ending in '\n'.
std::string PlainText(const std::vector<Line>& lines);

// What fits a screen, without a '\n' behind the last line, which says how many more there are.
// `colour`: with ANSI escapes.
std::string ScreenText(const std::vector<Line>& lines, size_t columns, size_t rows, bool colour);

}  // namespace attnd::attnctl
