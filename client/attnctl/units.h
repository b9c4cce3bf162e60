// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace attnd::attnctl {

// 131072 -> "131,072".
std::string Count(int64_t value);
// 1610612736 -> "1.5 GiB"; below 1 KiB in bytes. At most three significant decimals.
std::string Bytes(double bytes);
// 2.5e9 -> "2.5 GFLOP".
std::string Flop(double flop);
// Nanoseconds: "850 ns", "12.3 us", "4.56 ms", "1.20 s".
std::string Duration(double ns);
// 0.03125 -> "3.1 %", 0.0625 -> "6.25 %"; below 1 % with two decimals.
std::string Percent(double ratio);

}  // namespace attnd::attnctl
