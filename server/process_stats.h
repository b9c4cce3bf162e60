// What /proc says of this process: the process_* metrics.
#pragma once

#include <cstdint>

namespace attnd::server {

struct ProcessStats {
  double cpu_seconds = 0;
  int64_t open_fds = 0;
  int64_t max_fds = 0;
  int64_t virtual_bytes = 0;
  int64_t resident_bytes = 0;
  double start_time_seconds = 0;  // since the Unix epoch
};

// Zero where /proc is missing.
ProcessStats ReadProcessStats();

}  // namespace attnd::server
