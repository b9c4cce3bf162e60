// Where a kernel calls, for reports.
#pragma once

#include <cstring>
#include <string>

namespace attnd::kernels::cuda::emulation {

struct Site {
  const char* file = "";
  int line = 0;

  bool operator==(const Site& other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
};

// As a default argument, the place of the call.
constexpr Site Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {file, line};
}

// "attention.cuh:120": the folder is left out.
inline std::string ToString(Site site) {
  const char* slash = std::strrchr(site.file, '/');
  return std::string(slash == nullptr ? site.file : slash + 1) + ":" + std::to_string(site.line);
}

}  // namespace attnd::kernels::cuda::emulation
