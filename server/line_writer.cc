// Lines to a descriptor that may be a pipe which nobody reads.
#include "server/line_writer.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace attnd::server {
namespace {

constexpr int kPatienceMs = 100;

}  // namespace

bool LineWriter::Ready() {
  pollfd polled = {fd_, POLLOUT, 0};
  const int ready = poll(&polled, 1, blocked_ ? 0 : kPatienceMs);
  blocked_ = ready <= 0 || (polled.revents & POLLOUT) == 0;
  return !blocked_;
}

// Whether all of it was written. A pipe that is ready takes PIPE_BUF bytes without blocking.
// O_NONBLOCK would be simpler, but it is a property of the terminal or pipe that others share.
bool LineWriter::Put(std::string_view text) {
  while (!text.empty()) {
    if (!Ready()) {
      return false;
    }
    const ssize_t written = write(fd_, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno != EINTR) {
      blocked_ = true;
      return false;
    }
    if (written > 0) {
      cut_ = text[static_cast<size_t>(written) - 1] != '\n';
      text.remove_prefix(static_cast<size_t>(written));
    }
  }
  return true;
}

void LineWriter::Write(std::string_view line, const std::function<std::string(int64_t)>& dropped) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (cut_ && !Put("\n")) {
    ++dropped_;
    return;
  }
  if (dropped_ > 0 && Put(dropped(dropped_))) {
    dropped_ = 0;
  }
  if (dropped_ > 0 || !Put(line)) {
    ++dropped_;
  }
}

bool LineWriter::blocked() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return blocked_;
}

LineWriter& StderrLines() {
  static LineWriter lines(STDERR_FILENO);
  return lines;
}

}  // namespace attnd::server
