// The control groups that contain this process.
#pragma once

#include <string>
#include <vector>

namespace attnd {

struct CgroupDir {
  int version = 2;
  std::string path;  // where its files lie
};

// The group of the process under `controller` ("cpu", "memory") and all groups around it that can
// be seen, innermost first: each of them limits. Under v2 all controllers share one tree; a hybrid
// system may have both. `root` stands before /proc and /sys.
std::vector<CgroupDir> CgroupDirs(const std::string& root, const std::string& controller);

}  // namespace attnd
