#include "cuda_emulation/machine.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "kernels/check.h"

namespace attnd::kernels::cuda::emulation {
namespace {

// Leaves a kernel that has a fault. The other threads stay where they are: what lies on their
// stacks needs no destructor.
struct Abandon {};

constexpr int kCacheLine = 64;
constexpr int kPage = 4096;
constexpr int kMaxSharedBytes = 227 << 10;

int SharedLimit(int architecture) {
  switch (architecture) {
    case 80:
      return 163 << 10;
    case 89:
      return 99 << 10;
    case 90:
    case 100:
      return kMaxSharedBytes;
  }
  Check(false, "the emulated architecture is 80, 89, 90 or 100");
  return 0;
}

}  // namespace

constinit thread_local Machine* Machine::current_ = nullptr;

const char* ToString(Wait wait) {
  switch (wait) {
    case Wait::kNone:
      return "nothing";
    case Wait::kSyncBlock:
      return "SyncBlock";
    case Wait::kSyncWarp:
      return "SyncWarp";
    case Wait::kShuffle:
      return "Shuffle";
    case Wait::kAny:
      return "Any";
    case Wait::kMma:
      return "Mma";
    case Wait::kLoadMatrix:
      return "LoadMatrix4";
  }
  return "?";
}

Machine::Machine()
    : shared_(static_cast<char*>(std::aligned_alloc(1024, kMaxSharedBytes)),
              [](char* bytes) { std::free(bytes); }),
      shadow_(kMaxSharedBytes) {}

Machine::~Machine() = default;

void Machine::SetOrder(Order order, uint64_t seed) {
  order_ = order;
  random_ = seed * 0x9e3779b97f4a7c15u | 1;  // xorshift must not start from zero
}

void Machine::SetArchitecture(int architecture) {
  SharedLimit(architecture);
  architecture_ = architecture;
}

bool Machine::CheckShape(const LaunchShape& shape) {
  const int limit = SharedLimit(architecture_);
  if (shape.threads < kWarp || shape.threads > kMaxThreads || shape.threads % kWarp != 0) {
    Fault("a block of " + std::to_string(shape.threads) +
          " threads; it has whole warps, 32 to 1024 threads");
  } else if (shape.shared_bytes < 0 || shape.shared_bytes > limit) {
    Fault(std::to_string(shape.shared_bytes) + " bytes of shared memory; sm_" +
          std::to_string(architecture_) + " has " + std::to_string(limit) + " for a block");
  } else if (shape.grid.x < 1 || shape.grid.y < 1 || shape.grid.z < 1 || shape.grid.y > 65535 ||
             shape.grid.z > 65535) {
    Fault("a grid of " + std::to_string(shape.grid.x) + " x " + std::to_string(shape.grid.y) +
          " x " + std::to_string(shape.grid.z) + " blocks");
  }
  return fault_.empty();
}

bool Machine::RunGrid(const LaunchShape& shape, const std::function<void()>& body) {
  Check(current_ == nullptr, "a kernel launches no kernel");
  if (!CheckShape(shape)) {
    return false;
  }
  shape_ = shape;
  body_ = &body;
  std::vector<int64_t> blocks(int64_t{shape.grid.x} * shape.grid.y * shape.grid.z);
  std::iota(blocks.begin(), blocks.end(), 0);
  if (order_ == Order::kReverse) {
    std::reverse(blocks.begin(), blocks.end());
  } else if (order_ == Order::kRandom) {
    for (size_t i = blocks.size(); i > 1; --i) {
      std::swap(blocks[i - 1], blocks[Random() % i]);
    }
  }
  current_ = this;
  for (const int64_t block : blocks) {
    block_ = {static_cast<int>(block % shape.grid.x),
              static_cast<int>(block / shape.grid.x % shape.grid.y),
              static_cast<int>(block / shape.grid.x / shape.grid.y)};
    RunBlock();
    if (!fault_.empty()) {
      break;
    }
  }
  current_ = nullptr;
  return fault_.empty();
}

void Machine::RunBlock() {
  std::memset(shared_.get(), 0xff, shape_.shared_bytes);  // NaN in every element type
  threads_.resize(std::max<size_t>(threads_.size(), shape_.threads));
  warps_.assign(shape_.threads / kWarp, Warp());
  ready_ = {};
  live_ = shape_.threads;
  at_barrier_ = 0;
  if (clock_ > UINT32_MAX / 2) {  // a block uses fewer epochs than that
    clock_ = 0;
    shadow_.Clear();
  }
  run_epoch_ = clock_ + 1;
  AdvanceBlockEpoch();
  for (int i = 0; i < shape_.threads; ++i) {
    Thread& thread = threads_[i];
    if (thread.fiber == nullptr) {
      thread.fiber = std::make_unique<Fiber>(kStackBytes, i * kCacheLine * 5 % kPage);
    }
    thread.fiber->Prepare(ThreadMain, this);
    thread.wait = Wait::kNone;
    thread.done = false;
    thread.copies = Copies();
    MakeReady(i);
  }
  running_ = PickReady();
  main_.SwitchTo(*threads_[running_].fiber);
  running_ = -1;
}

void Machine::ThreadMain(void* machine) {
  Machine& self = *static_cast<Machine*>(machine);
  try {
    (*self.body_)();
    self.ExitThread();
  } catch (const Abandon&) {
    // Outside of the handler: exceptions in flight belong to an OS thread, not to a fiber.
  }
  self.threads_[self.running_].fiber->SwitchTo(self.main_, true);
}

void Machine::ExitThread() {
  threads_[running_].done = true;
  Warp& warp = warps_[running_ / kWarp];
  ++warp.exited;
  if (warp.arrived > 0) {
    Fault("the thread returns while lane " + std::to_string(warp.first_lane) + " waits in " +
          ToString(warp.wait) + " at " + ToString(warp.site));
  }
  if (--live_ == 0) {
    return;
  }
  if (at_barrier_ == live_) {
    ReleaseBlock();
  }
  SwitchToNext(true);
}

void Machine::SyncBlock(Site site) {
  if (at_barrier_ == 0) {
    first_at_barrier_ = running_;
  } else if (const Site first = threads_[first_at_barrier_].site; !(first == site)) {
    Fault("divergent block: SyncBlock at " + ToString(site) + ", but thread " +
          std::to_string(first_at_barrier_) + " waits in SyncBlock at " + ToString(first));
  }
  ++at_barrier_;
  threads_[running_].wait = Wait::kSyncBlock;
  threads_[running_].site = site;
  if (at_barrier_ < live_) {
    Park(Wait::kSyncBlock, site);
    return;
  }
  ReleaseBlock();
  GoOn();
}

void Machine::AdvanceBlockEpoch() {
  block_epoch_ = ++clock_;
  for (Warp& warp : warps_) {
    warp.epoch = block_epoch_;
  }
}

void Machine::ReleaseBlock() {
  at_barrier_ = 0;
  AdvanceBlockEpoch();
  for (int i = 0; i < shape_.threads; ++i) {
    if (threads_[i].wait == Wait::kSyncBlock) {
      threads_[i].wait = Wait::kNone;
      MakeReady(i);
    }
  }
}

void Machine::Meet(Wait what, Site site, void* operand,
                   void (*compute)(Machine&, const Operands&)) {
  Warp& warp = warps_[running_ / kWarp];
  const int lane = running_ % kWarp;
  if (warp.exited > 0) {
    Fault(std::string(ToString(what)) + " at " + ToString(site) + ", but a lane has returned");
  }
  if (warp.arrived == 0) {
    warp.wait = what;
    warp.site = site;
    warp.first_lane = lane;
  } else if (warp.wait != what || !(warp.site == site)) {
    Fault("divergent warp: " + std::string(ToString(what)) + " at " + ToString(site) +
          ", but lane " + std::to_string(warp.first_lane) + " is in " + ToString(warp.wait) +
          " at " + ToString(warp.site));
  }
  warp.operands[lane] = operand;
  if (++warp.arrived < kWarp) {
    Park(what, site);
    return;
  }
  if (compute != nullptr) {
    compute(*this, warp.operands);
  }
  warp.arrived = 0;
  if (what == Wait::kSyncWarp) {
    warp.epoch = ++clock_;
  }
  for (int i = 0; i < kWarp; ++i) {
    const int thread = running_ / kWarp * kWarp + i;
    threads_[thread].wait = Wait::kNone;
    MakeReady(thread);
  }
  GoOn();
}

void Machine::Park(Wait what, Site site) {
  threads_[running_].wait = what;
  threads_[running_].site = site;
  SwitchToNext(false);
}

void Machine::GoOn() {
  MakeReady(running_);
  SwitchToNext(false);
}

void Machine::SwitchToNext(bool ends) {
  const int next = PickReady();
  if (next < 0) {
    ReportDeadlock();
  }
  if (next != running_) {
    Fiber& from = *threads_[running_].fiber;
    running_ = next;
    from.SwitchTo(*threads_[next].fiber, ends);
  }
}

// The one chosen is no longer ready; -1 when none is.
int Machine::PickReady() {
  int from = 0;
  if (order_ == Order::kRandom) {
    from = static_cast<int>(Random() * shape_.threads >> 32);
  }
  int chosen = -1;
  if (order_ == Order::kReverse) {
    for (int word = std::ssize(ready_) - 1; word >= 0 && chosen < 0; --word) {
      if (ready_[word] != 0) {
        chosen = word * 64 + 63 - std::countl_zero(ready_[word]);
      }
    }
  } else {
    chosen = FirstReadyFrom(from);
    if (chosen < 0 && from > 0) {
      chosen = FirstReadyFrom(0);
    }
  }
  if (chosen >= 0) {
    ready_[chosen / 64] &= ~(uint64_t{1} << chosen % 64);
  }
  return chosen;
}

int Machine::FirstReadyFrom(int from) const {
  uint64_t bits = ready_[from / 64] >> from % 64 << from % 64;
  for (int word = from / 64;; bits = ready_[word]) {
    if (bits != 0) {
      return word * 64 + std::countr_zero(bits);
    }
    if (++word == std::ssize(ready_)) {
      return -1;
    }
  }
}

uint64_t Machine::Random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_ * 0x2545f4914f6cdd1du >> 32;
}

// "threads 0 to 31: in SyncBlock at a.cuh:7; threads 32 to 63: in Shuffle at a.cuh:9".
void Machine::ReportDeadlock() {
  std::string report = "deadlock: no thread can go on";
  for (int i = 0; i < shape_.threads;) {
    const Thread& thread = threads_[i];
    int end = i + 1;
    while (
        end < shape_.threads && threads_[end].done == thread.done &&
        (thread.done || (threads_[end].wait == thread.wait && threads_[end].site == thread.site))) {
      ++end;
    }
    report += end == i + 1
                  ? "; thread " + std::to_string(i) + ": "
                  : "; threads " + std::to_string(i) + " to " + std::to_string(end - 1) + ": ";
    report += thread.done
                  ? "returned"
                  : std::string("in ") + ToString(thread.wait) + " at " + ToString(thread.site);
    i = end;
  }
  Fault(report);
}

void Machine::Fault(const std::string& what) {
  std::string line = what;
  if (running_ >= 0) {
    line = "block " + std::to_string(block_.x);
    if (shape_.grid.y > 1 || shape_.grid.z > 1) {
      line += "," + std::to_string(block_.y) + "," + std::to_string(block_.z);
    }
    line += ", thread " + std::to_string(running_) + ": " + what;
  }
  if (!collects_faults_) {
    std::fprintf(stderr, "emulated device: %s\n", line.c_str());
    std::abort();
  }
  if (fault_.empty()) {
    fault_ = line;
  }
  if (running_ >= 0) {
    throw Abandon();
  }
}

}  // namespace attnd::kernels::cuda::emulation
