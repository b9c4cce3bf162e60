// The terminal in raw mode on its alternate screen.
#include "client/attnctl/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace attnd::attnctl {
namespace {

// Alternate screen, no cursor, no wrapping of long lines; and the reverse.
constexpr char kEnter[] = "\033[?1049h\033[?25l\033[?7l\033[2J";
constexpr char kLeave[] = "\033[?7h\033[?25h\033[?1049l";

void Write(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

Terminal::Terminal() : has_keys_(tcgetattr(STDIN_FILENO, &before_) == 0) { Enter(); }

Terminal::~Terminal() { Leave(); }

void Terminal::Enter() {
  if (entered_) {
    return;
  }
  entered_ = true;
  if (has_keys_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C and Ctrl-Z stay signals
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
  }
  Write(kEnter);
}

void Terminal::Leave() {
  if (!entered_) {
    return;
  }
  entered_ = false;
  Write(kLeave);
  if (has_keys_) {
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
  }
}

void Terminal::Draw(const std::string& text) {
  std::string frame = "\033[H";
  for (const char c : text) {
    frame += c == '\n' ? "\033[K\n" : std::string(1, c);
  }
  Write(frame + "\033[K\033[J");
}

char Terminal::TakeKey() {
  char key = '\0';
  return read(STDIN_FILENO, &key, 1) == 1 ? key : '\0';
}

Terminal::Size Terminal::size() const {
  winsize window = {};
  Size size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 0) {
    size = {window.ws_col, window.ws_row};
  }
  return size;
}

bool WantsColour() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0') &&
         kind != nullptr && std::string(kind) != "dumb";
}

}  // namespace attnd::attnctl
