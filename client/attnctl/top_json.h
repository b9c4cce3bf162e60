// A frame of attnctl top as a line of JSON.
#pragma once

#include <string>

#include "client/attnctl/top_lines.h"

namespace attnd::attnctl {

// Without a '\n'. Rates and percentiles are null where there is nothing to measure.
std::string TopJson(const TopFrame& frame);

}  // namespace attnd::attnctl
