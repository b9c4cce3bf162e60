// Limits of the machine, of the affinity mask and of control groups.
#include "core/host_limits.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "core/cgroup_dirs.h"

namespace attnd {
namespace {

std::optional<std::string> FirstWord(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  return file >> word ? std::optional<std::string>(word) : std::nullopt;
}

// The number a file begins with; nullopt for "max", -1, or no such file.
std::optional<int64_t> Natural(const std::string& path) {
  const std::optional<std::string> word = FirstWord(path);
  int64_t value = 0;
  if (!word || !absl::SimpleAtoi(*word, &value) || value < 0) {
    return std::nullopt;
  }
  return value;
}

// The number behind `key` in a file of "key number" lines; `scale` multiplies it.
std::optional<int64_t> Keyed(const std::string& path, const std::string& key, int64_t scale = 1) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    int64_t value = 0;
    if (words >> name >> value && name == key && value >= 0 &&
        value <= std::numeric_limits<int64_t>::max() / scale) {
      return value * scale;
    }
  }
  return std::nullopt;
}

int64_t AffinityCpus() {
  for (int size = 1024; size <= (1 << 18); size *= 2) {  // the kernel refuses masks too small
    cpu_set_t* set = CPU_ALLOC(size);
    if (set == nullptr) {
      break;
    }
    const size_t bytes = CPU_ALLOC_SIZE(size);
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) {
      return count;
    }
  }
  return std::max<int64_t>(1, std::thread::hardware_concurrency());
}

// CPU time per period, rounded up; nullopt where the group sets none.
std::optional<int64_t> QuotaCpus(const CgroupDir& group) {
  std::optional<int64_t> quota;
  std::optional<int64_t> period;
  if (group.version == 2) {
    std::ifstream file(group.path + "/cpu.max");
    std::string words[2];
    int64_t values[2];
    if (file >> words[0] >> words[1] && absl::SimpleAtoi(words[0], &values[0]) &&
        absl::SimpleAtoi(words[1], &values[1])) {
      quota = values[0];
      period = values[1];
    }
  } else {
    quota = Natural(group.path + "/cpu.cfs_quota_us");
    period = Natural(group.path + "/cpu.cfs_period_us");
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) {
    return std::nullopt;
  }
  return (*quota - 1) / *period + 1;
}

std::optional<MemoryLimit> GroupMemory(const CgroupDir& group) {
  const bool v2 = group.version == 2;
  const auto limit = Natural(group.path + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = Natural(group.path + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) {
    return std::nullopt;
  }
  const int64_t cache =
      Keyed(group.path + "/memory.stat", v2 ? "inactive_file" : "total_inactive_file").value_or(0);
  return MemoryLimit{*limit, std::max<int64_t>(0, *used - cache), group.path};
}

std::optional<MemoryLimit> HostMemory(const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  const auto total = Keyed(path, "MemTotal:", 1024);
  const auto available = Keyed(path, "MemAvailable:", 1024);
  if (!total || !available) {
    return std::nullopt;
  }
  return MemoryLimit{*total, std::max<int64_t>(0, *total - *available), "host"};
}

}  // namespace

int64_t UsableCpus(const std::string& root) {
  int64_t cpus = AffinityCpus();
  for (const CgroupDir& group : CgroupDirs(root, "cpu")) {
    cpus = std::min(cpus, QuotaCpus(group).value_or(cpus));
  }
  return std::max<int64_t>(1, cpus);
}

MemoryLimit UsableMemory(const std::string& root) {
  std::optional<MemoryLimit> best = HostMemory(root);
  for (const CgroupDir& group : CgroupDirs(root, "memory")) {
    const std::optional<MemoryLimit> limit = GroupMemory(group);
    if (limit && (!best || limit->left_bytes() < best->left_bytes())) {
      best = limit;
    }
  }
  return best.value_or(MemoryLimit());
}

}  // namespace attnd
