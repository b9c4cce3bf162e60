// From /proc/self/cgroup and /proc/self/mountinfo to directories.
#include "core/cgroup_dirs.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/str_split.h"

namespace attnd {
namespace {

struct Mount {
  std::string root;   // the group that is mounted
  std::string point;  // where
};

bool Contains(const std::string& list, const std::string& word) {
  const std::vector<std::string> words = absl::StrSplit(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The path of the process's group: lines "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1).
bool FindGroup(const std::string& root, int version, const std::string& controller,
               std::string* path) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() == 3 &&
        (version == 2 ? parts[0] == "0" && parts[1].empty() : Contains(parts[1], controller))) {
      *path = parts[2];
      return true;
    }
  }
  return false;
}

// Lines "36 35 98:0 /root /point options - type source super-options"; the optional fields before
// the dash vary in number.
bool FindMount(const std::string& root, int version, const std::string& controller, Mount* mount) {
  std::ifstream file(root + "/proc/self/mountinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) {
      continue;
    }
    const bool wanted =
        version == 2 ? dash[1] == "cgroup2" : dash[1] == "cgroup" && Contains(dash[3], controller);
    if (wanted) {
      *mount = {words[3], words[4]};
      return true;
    }
  }
  return false;
}

void AppendDirs(const std::string& root, int version, const std::string& controller,
                std::vector<CgroupDir>* dirs) {
  std::string group;
  Mount mount;
  if (!FindGroup(root, version, controller, &group) ||
      !FindMount(root, version, controller, &mount)) {
    return;
  }
  // In a container the mount may show a part of the tree whose path on the host is mount.root.
  if (mount.root != "/" && group.rfind(mount.root, 0) == 0) {
    group = group.substr(mount.root.size());
  }
  if (group.find("/..") != std::string::npos) {
    group.clear();  // outside what can be seen: the mount itself is all there is
  }
  while (!group.empty() && group.back() == '/') {
    group.pop_back();
  }
  for (;;) {
    dirs->push_back({version, root + mount.point + group});
    if (group.empty()) {
      return;
    }
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

std::vector<CgroupDir> CgroupDirs(const std::string& root, const std::string& controller) {
  std::vector<CgroupDir> dirs;
  AppendDirs(root, 2, controller, &dirs);
  AppendDirs(root, 1, controller, &dirs);
  return dirs;
}

}  // namespace attnd
