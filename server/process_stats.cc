// What /proc says of this process.
#include "server/process_stats.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace attnd::server {
namespace {

int64_t CountOpenFds() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) {
    return 0;
  }
  int64_t count = -3;  // ".", ".." and the descriptor of this listing
  while (readdir(directory) != nullptr) {
    ++count;
  }
  closedir(directory);
  return count;
}

double BootTimeSeconds() {
  std::ifstream file("/proc/stat");
  std::string key;
  double value = 0;
  while (file >> key) {
    if (key == "btime" && file >> value) {
      return value;
    }
    std::getline(file, key);
  }
  return 0;
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    stats.max_fds = static_cast<int64_t>(limit.rlim_cur);
  }
  stats.open_fds = CountOpenFds();
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');  // the name may hold spaces and parentheses
  if (name_end == std::string::npos) {
    return stats;
  }
  std::istringstream fields(line.substr(name_end + 1));
  // Read once: the kernel's own word on it moves by a second when the clock is set.
  static const double boot_time = BootTimeSeconds();
  const auto tick = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::string field;
  for (int i = 3; i <= 24 && fields >> field; ++i) {  // numbered as in proc(5)
    if (i == 14 || i == 15) {
      stats.cpu_seconds += std::stod(field) / tick;
    } else if (i == 22) {
      stats.start_time_seconds = boot_time + std::stod(field) / tick;
    } else if (i == 23) {
      stats.virtual_bytes = std::stoll(field);
    } else if (i == 24) {
      stats.resident_bytes = std::stoll(field) * sysconf(_SC_PAGESIZE);
    }
  }
  return stats;
}

}  // namespace attnd::server
