// How far a transfer is, on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace attnd::attnctl {

// "export [#####     ]  50 %  1 GiB of 2 GiB, 512 MiB/s".
std::string ProgressLine(const std::string& what, int64_t done_bytes, int64_t total_bytes,
                         double seconds);

// Draws on stderr, at most ten times a second; nothing when that is no terminal.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  // Wipes the line, so that a message has it to itself.
  ~ProgressBar();

  // What is waited for, in the bar's place; a line of its own where stderr is no terminal.
  void Say(const std::string& text);
  void Show(int64_t done_bytes, int64_t total_bytes);

 private:
  const std::string what_;
  const bool visible_;
  std::optional<std::chrono::steady_clock::time_point> start_;  // of the transfer: the first Show
  std::chrono::steady_clock::time_point next_;
};

}  // namespace attnd::attnctl
