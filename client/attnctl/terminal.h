// A terminal that a command has to itself for a while: the alternate screen, keys without Enter.
#pragma once

#include <termios.h>

#include <cstddef>
#include <string>

namespace attnd::attnctl {

class Terminal {
 public:
  struct Size {
    size_t columns = 80;
    size_t rows = 24;
  };

  // Standard output must be a terminal; keys are read where standard input is one too.
  Terminal();
  // What was on the screen, and how keys worked, is back.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Leaves the screen to the shell, and takes it again.
  void Leave();
  void Enter();

  // Draws `text` from the top left and wipes the rest.
  void Draw(const std::string& text);
  // For poll(): readable while a key waits; -1 where there are no keys.
  int key_fd() const { return has_keys_ ? 0 : -1; }
  // The key that waits; '\0' when there is none.
  char TakeKey();
  Size size() const;

 private:
  termios before_ = {};  // before has_keys_, whose making fills it
  bool has_keys_ = false;
  bool entered_ = false;
};

// Whether colours are wanted: standard output is a terminal that has them, and NO_COLOR is not set.
bool WantsColour();

}  // namespace attnd::attnctl
