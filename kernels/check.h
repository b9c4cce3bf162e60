// Check(): the end of the process when an invariant of ours is broken.
//
// Never for input: what a user can cause is an absl::Status with the field, the value and the
// limit. A Check that fires is a bug, and continuing would answer wrongly.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace attnd {

[[noreturn]] inline void CheckFailed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, what);
  std::abort();
}

// `what` states the invariant. The defaults are the caller's place (std::source_location is not
// understood by clang 14, whose clang-tidy reads this).
inline void Check(bool holds, const char* what, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (!holds) [[unlikely]] {
    CheckFailed(what, file, line);
  }
}

}  // namespace attnd
