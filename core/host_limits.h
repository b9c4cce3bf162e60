// How many CPUs and how much memory this process may use: what the machine has, cut by the
// control groups (v1 and v2) that contain the process and by its affinity.
#pragma once

#include <cstdint>
#include <string>

namespace attnd {

// `root` stands before /proc and /sys; tests put files of their own there.

// At least 1: the CPUs of the affinity mask, or fewer where a control group grants less CPU time
// (rounded up to whole CPUs).
int64_t UsableCpus(const std::string& root = "");

struct MemoryLimit {
  int64_t limit_bytes = 0;
  int64_t used_bytes = 0;  // by all that share the limit, without what the kernel can reclaim
  std::string origin;      // "host", or the directory of the control group

  int64_t left_bytes() const { return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0; }
};

// The limit that leaves the least; all zero where the system says nothing.
MemoryLimit UsableMemory(const std::string& root = "");

}  // namespace attnd
