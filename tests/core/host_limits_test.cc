#include "core/host_limits.h"

#include <gtest/gtest.h>

#include "core/cgroup_dirs.h"
#include "tests/support/temp_dir.h"

namespace attnd {
namespace {

constexpr char kMeminfo[] = "MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  600 kB\n";
constexpr char kV2Mount[] =
    "25 1 0:22 / /proc rw - proc proc rw\n"
    "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kV1Mounts[] =
    "33 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "34 25 0:29 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n";

TEST(HostLimits, OfThisMachineArePlausible) {
  EXPECT_GE(UsableCpus(), 1);
  const MemoryLimit memory = UsableMemory();
  EXPECT_GT(memory.limit_bytes, int64_t{1} << 26);
  EXPECT_LE(memory.used_bytes, memory.limit_bytes);
  EXPECT_FALSE(memory.origin.empty());
}

TEST(HostLimits, WithoutAnyFile) {
  const TempDir dir;
  EXPECT_EQ(UsableCpus(dir.path()), UsableCpus(dir.path() + "/none"));
  EXPECT_EQ(UsableMemory(dir.path()).limit_bytes, 0);
  EXPECT_EQ(UsableMemory(dir.path()).left_bytes(), 0);
}

TEST(HostLimits, OfTheHostWhereNoGroupLimits) {
  const TempDir dir;
  dir.Write("proc/meminfo", kMeminfo);
  dir.Write("proc/self/cgroup", "0::/\n");
  dir.Write("proc/self/mountinfo", kV2Mount);
  const MemoryLimit memory = UsableMemory(dir.path());
  EXPECT_EQ(memory.limit_bytes, 1000 * 1024);
  EXPECT_EQ(memory.used_bytes, 400 * 1024);
  EXPECT_EQ(memory.left_bytes(), 600 * 1024);
  EXPECT_EQ(memory.origin, "host");
}

TEST(HostLimits, OfTheTightestGroupAround) {
  const TempDir dir;
  dir.Write("proc/meminfo", kMeminfo);
  dir.Write("proc/self/cgroup", "0::/slice/unit\n");
  dir.Write("proc/self/mountinfo", kV2Mount);
  dir.Write("sys/fs/cgroup/slice/unit/memory.max", "max\n");
  dir.Write("sys/fs/cgroup/slice/unit/memory.current", "5000\n");
  dir.Write("sys/fs/cgroup/slice/unit/cpu.max", "150000 100000\n");
  dir.Write("sys/fs/cgroup/slice/memory.max", "100000\n");
  dir.Write("sys/fs/cgroup/slice/memory.current", "70000\n");
  dir.Write("sys/fs/cgroup/slice/memory.stat", "anon 1\ninactive_file 20000\n");
  dir.Write("sys/fs/cgroup/slice/cpu.max", "max 100000\n");
  const MemoryLimit memory = UsableMemory(dir.path());
  EXPECT_EQ(memory.limit_bytes, 100000);
  EXPECT_EQ(memory.used_bytes, 50000);  // what the kernel can reclaim is not used
  EXPECT_EQ(memory.origin, dir.path() + "/sys/fs/cgroup/slice");
  EXPECT_LE(UsableCpus(dir.path()), 2);
  dir.Write("sys/fs/cgroup/slice/cpu.max", "1000 100000\n");
  EXPECT_EQ(UsableCpus(dir.path()), 1);
}

TEST(HostLimits, OfVersion1) {
  const TempDir dir;
  dir.Write("proc/meminfo", kMeminfo);
  dir.Write("proc/self/cgroup", "9:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/other\n");
  dir.Write("proc/self/mountinfo", kV1Mounts);
  const std::string memory_dir = "sys/fs/cgroup/memory/docker/x/";
  dir.Write(memory_dir + "memory.limit_in_bytes", "300000\n");
  dir.Write(memory_dir + "memory.usage_in_bytes", "100000\n");
  dir.Write(memory_dir + "memory.stat", "inactive_file 7\ntotal_inactive_file 40000\n");
  dir.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  dir.Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n");
  dir.Write("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "50000\n");
  dir.Write("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  dir.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  const MemoryLimit memory = UsableMemory(dir.path());
  EXPECT_EQ(memory.limit_bytes, 300000);
  EXPECT_EQ(memory.used_bytes, 60000);
  EXPECT_EQ(UsableCpus(dir.path()), 1);
}

TEST(HostLimits, UseMayExceedALimit) {
  const TempDir dir;
  dir.Write("proc/self/cgroup", "0::/\n");
  dir.Write("proc/self/mountinfo", kV2Mount);
  dir.Write("sys/fs/cgroup/memory.max", "1000\n");
  dir.Write("sys/fs/cgroup/memory.current", "2000\n");
  EXPECT_EQ(UsableMemory(dir.path()).left_bytes(), 0);
}

TEST(HostLimits, NonsenseIsNoLimit) {
  const TempDir dir;
  dir.Write("proc/meminfo", kMeminfo);
  dir.Write("proc/self/cgroup", "0::/\nnonsense\n::\n");
  dir.Write("proc/self/mountinfo", "- \n1 2 3\n" + std::string(kV2Mount));
  dir.Write("sys/fs/cgroup/memory.max", "-5\n");
  dir.Write("sys/fs/cgroup/memory.current", "99999999999999999999\n");
  const int64_t cpus = UsableCpus(dir.path());
  for (const char* text : {"0 0\n", "-1 100000\n", "100\n", "", "x y\n", "5 0\n"}) {
    dir.Write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(UsableCpus(dir.path()), cpus) << text;
  }
  EXPECT_EQ(UsableMemory(dir.path()).origin, "host");
}

TEST(CgroupDirs, InsideAContainerThatSeesAPartOfTheTree) {
  const TempDir dir;
  dir.Write("proc/self/cgroup", "0::/docker/abc/inner\n");
  dir.Write("proc/self/mountinfo",
            "30 25 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  const auto dirs = CgroupDirs(dir.path(), "memory");
  ASSERT_EQ(dirs.size(), 2u);
  EXPECT_EQ(dirs[0].path, dir.path() + "/sys/fs/cgroup/inner");
  EXPECT_EQ(dirs[1].path, dir.path() + "/sys/fs/cgroup");
  EXPECT_EQ(dirs[0].version, 2);
}

TEST(CgroupDirs, OutsideOfWhatIsMounted) {
  const TempDir dir;
  dir.Write("proc/self/cgroup", "0::/../../elsewhere\n");
  dir.Write("proc/self/mountinfo", kV2Mount);
  const auto dirs = CgroupDirs(dir.path(), "cpu");
  ASSERT_EQ(dirs.size(), 1u);
  EXPECT_EQ(dirs[0].path, dir.path() + "/sys/fs/cgroup");
}

}  // namespace
}  // namespace attnd
