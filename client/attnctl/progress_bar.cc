// A bar on a terminal for long transfers.
#include "client/attnctl/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "client/attnctl/units.h"

namespace attnd::attnctl {
namespace {

constexpr size_t kWidth = 30;
constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

std::string ProgressLine(const std::string& what, int64_t done_bytes, int64_t total_bytes,
                         double seconds) {
  const double share =
      total_bytes > 0 ? static_cast<double>(done_bytes) / static_cast<double>(total_bytes) : 1;
  const size_t full = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * kWidth);
  char percent[16];
  std::snprintf(percent, sizeof(percent), "%3.0f %%", 100 * share);
  const double done = static_cast<double>(done_bytes);
  return what + " [" + std::string(full, '#') + std::string(kWidth - full, ' ') + "] " + percent +
         "  " + Bytes(done) + " of " + Bytes(static_cast<double>(total_bytes)) +
         (seconds > 0 ? ", " + Bytes(done / seconds) + "/s" : "");
}

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)),
      visible_(isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() {
  if (visible_) {
    std::fputs("\r\033[K", stderr);
  }
}

void ProgressBar::Say(const std::string& text) {
  if (visible_) {
    std::fprintf(stderr, "\r\033[K%s: %s", what_.c_str(), text.c_str());
  } else {
    std::fprintf(stderr, "attnctl: %s: %s\n", what_.c_str(), text.c_str());
  }
}

void ProgressBar::Show(int64_t done_bytes, int64_t total_bytes) {
  const auto now = std::chrono::steady_clock::now();
  start_ = start_.value_or(now);
  if (!visible_ || (now < next_ && done_bytes < total_bytes)) {
    return;
  }
  next_ = now + kInterval;
  const double seconds = std::chrono::duration<double>(now - *start_).count();
  std::fprintf(stderr, "\r\033[K%s", ProgressLine(what_, done_bytes, total_bytes, seconds).c_str());
}

}  // namespace attnd::attnctl
