// The emulated multiprocessor: runs the blocks of a grid one after the other, each with a fiber per
// thread, on the calling OS thread. Collectives are rendezvous: whoever arrives last computes for
// all. The first fault of a kernel ends its launch.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda_emulation/fiber.h"
#include "cuda_emulation/shadow.h"
#include "cuda_emulation/site.h"
#include "kernels/check.h"

namespace attnd::kernels::cuda {

struct Index3 {
  int x = 1, y = 1, z = 1;
};

namespace emulation {

inline constexpr int kWarp = 32;
inline constexpr int kMaxThreads = 1024;

// Which thread runs next where several can, and which block: in order of their numbers, from the
// last to the first, or at random.
enum class Order { kInOrder, kReverse, kRandom };

// What a thread waits in.
enum class Wait : uint8_t { kNone, kSyncBlock, kSyncWarp, kShuffle, kAny, kMma, kLoadMatrix };
const char* ToString(Wait wait);

struct LaunchShape {
  Index3 grid;
  int threads = 0;
  int shared_bytes = 0;
};

// What kernels cost, as far as the emulation knows.
struct Counts {
  int64_t mmas = 0;            // of a warp
  int64_t load_matrices = 0;   // LoadMatrix4 and LoadMatrix4Transposed of a warp
  int64_t bank_conflicts = 0;  // further passes over the banks that these needed, four being due
  int64_t copies = 0;          // of 16 bytes, of a thread
};

inline constexpr int kCopyBytes = 16;

struct Copy {
  int64_t to;        // byte of shared memory
  const void* from;  // null: zeros
  Site site;
};

// The copies that a thread has begun.
struct Copies {
  std::deque<Copy> pending;
  std::deque<int64_t> groups;  // of each: how many copies were begun up to its end
  int64_t done = 0;            // copies that were done
};

class Machine {
 public:
  Machine();
  ~Machine();

  // That which runs a kernel on this OS thread. Ends the process when none does.
  static Machine& Current() {
    Check(current_ != nullptr, "device functions are called by kernels alone");
    return *current_;
  }

  // Runs `body` once for each thread of each block. False after a fault.
  bool RunGrid(const LaunchShape& shape, const std::function<void()>& body);

  void SetOrder(Order order, uint64_t seed);
  void SetArchitecture(int architecture);
  // Faults end the process unless they are collected: then fault() says what the first one was.
  void set_collects_faults(bool collects) { collects_faults_ = collects; }
  const std::string& fault() const { return fault_; }
  void clear_fault() { fault_.clear(); }
  Counts& counts() { return counts_; }

  // For kernels.
  Index3 block() const { return block_; }
  Index3 grid() const { return shape_.grid; }
  int thread() const { return running_; }
  void SyncBlock(Site site);
  // All lanes of a warp meet; the last to come calls compute(*this, operands) with the operand of
  // each lane, and then they go on. An operand lies on its lane's stack.
  using Operands = std::array<void*, kWarp>;
  void Meet(Wait what, Site site, void* operand, void (*compute)(Machine&, const Operands&));
  Copies& copies() { return threads_[running_].copies; }
  // The block's shared memory from `offset` on. These end the launch when the bytes are not in it
  // or another thread's access is not ordered before this one: `name` is that of the access.
  const char* ReadShared(const char* name, Site site, int64_t offset, int64_t bytes);
  char* WriteShared(const char* name, Site site, int64_t offset, int64_t bytes);
  // A read by any lane of the warp.
  const char* ReadSharedByWarp(const char* name, Site site, int64_t offset, int64_t bytes);
  void BeginCopy(const Copy& copy);
  void EndCopy(const Copy& copy);
  char* SharedAddress(Site site, int64_t offset, int64_t bytes);  // only that they are in it
  int shared_bytes() const { return shape_.shared_bytes; }
  // Ends the launch: does not return to a kernel.
  void Fault(const std::string& what);

 private:
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    Wait wait = Wait::kNone;
    Site site;
    bool done = false;
    Copies copies;
  };
  struct Warp {
    int arrived = 0;
    int exited = 0;
    Wait wait = Wait::kNone;
    Site site;
    int first_lane = 0;  // of those that wait
    uint32_t epoch = 0;  // that of its last barrier
    Operands operands = {};
  };

  bool CheckShape(const LaunchShape& shape);
  void RunBlock();
  static void ThreadMain(void* machine);
  void ExitThread();
  void ReleaseBlock();
  void AdvanceBlockEpoch();
  void MakeReady(int thread) { ready_[thread / 64] |= uint64_t{1} << thread % 64; }
  void Park(Wait what, Site site);  // until it is made ready
  void GoOn();                      // gives way to any other that is ready
  void SwitchToNext(bool ends);
  int PickReady();
  int FirstReadyFrom(int from) const;
  uint64_t Random();
  void ReportDeadlock();

  Access MakeAccess(const char* name, Site site) const;
  void FaultIf(const std::string& wrong) {
    if (!wrong.empty()) [[unlikely]] {
      Fault(wrong);
    }
  }

  // Kernels' functions take no context: as on a device, there is one around them.
  static constinit thread_local Machine* current_;

  Order order_ = Order::kRandom;
  uint64_t random_ = 1;
  int architecture_ = 90;
  bool collects_faults_ = false;
  std::string fault_;
  Counts counts_;

  LaunchShape shape_;
  const std::function<void()>* body_ = nullptr;
  Index3 block_;
  int running_ = -1;  // thread of the block; -1: the launching one
  int live_ = 0;
  int at_barrier_ = 0;
  int first_at_barrier_ = 0;
  uint32_t clock_ = 0;  // of epochs (shadow.h)
  uint32_t run_epoch_ = 0;
  uint32_t block_epoch_ = 0;
  std::array<uint64_t, kMaxThreads / 64> ready_ = {};
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Fiber main_;
  std::unique_ptr<char[], void (*)(char*)> shared_;
  Shadow shadow_;
};

}  // namespace emulation
}  // namespace attnd::kernels::cuda
