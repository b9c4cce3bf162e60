// Lines to a descriptor that may be a pipe which nobody reads: a line is written or dropped, and
// nobody waits for long.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace attnd::server {

class LineWriter {
 public:
  explicit LineWriter(int fd) : fd_(fd) {}

  // Any thread. Waits 100 ms at most, and not at all once it has waited in vain, until the
  // descriptor takes something again. The line after those that were dropped follows `dropped`'s,
  // which says how many.
  void Write(std::string_view line, const std::function<std::string(int64_t)>& dropped);
  // Whether the last line that was tried was dropped.
  bool blocked();

 private:
  bool Ready();
  bool Put(std::string_view text);

  const int fd_;
  std::mutex mutex_;
  int64_t dropped_ = 0;
  bool blocked_ = false;
  bool cut_ = false;  // the last line ends in its middle
};

// Standard error: of the process, for whether it is blocked is the same for all.
LineWriter& StderrLines();

}  // namespace attnd::server
