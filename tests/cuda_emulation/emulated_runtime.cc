#include "cuda_emulation/emulated_runtime.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cuda_emulation/stream.h"
#include "kernels/check.h"
#include "kernels/convert.h"

namespace attnd::kernels::cuda {
namespace {

using Work = std::vector<std::function<void()>>;

constexpr int64_t kGuard = 4096;
constexpr uint8_t kGuardByte = 0xa5;
constexpr int64_t kArenaBytes = int64_t{1} << 30;  // of addresses: what is not used is not there
constexpr uint8_t kPoison = 0xff;                  // a NaN of every dtype

struct RecordedGraph : Graph {
  Work work;
};

// Four rows at a time against the columns of w, which vectorises along k only in w's conversion:
// the sums of a row are in the order of k, from a k that depends on the number of rows: a library
// has another kernel for another shape, and then a row has other bits.
void MultiplyRows(const GemmParams& p, int64_t batch) {
  const int64_t size = DTypeSize(p.dtype);
  const auto* x = static_cast<const uint8_t*>(p.x) + batch * p.x_batch * size;
  const auto* w = static_cast<const uint8_t*>(p.w) + batch * p.w_batch * size;
  float* y = p.y + batch * p.y_batch;
  constexpr int64_t kPanel = 16;  // outputs side by side: lanes of a vector
  std::vector<float> row(static_cast<size_t>(p.k));
  std::vector<float> panel(static_cast<size_t>(p.k * kPanel));
  std::vector<float> rows(static_cast<size_t>(p.used_rows * p.k));
  for (int64_t r = 0; r < p.used_rows; ++r) {
    kernels::ToFloat(p.dtype, x + r * p.x_row * size, p.k, rows.data() + r * p.k);
  }
  for (int64_t n = 0; n < p.n; n += kPanel) {
    const int64_t width = std::min(kPanel, p.n - n);
    std::fill(panel.begin(), panel.end(), 0.0f);
    for (int64_t i = 0; i < width; ++i) {
      kernels::ToFloat(p.dtype, w + (n + i) * p.w_row * size, p.k, row.data());
      for (int64_t k = 0; k < p.k; ++k) {
        panel[static_cast<size_t>(k * kPanel + i)] = row[static_cast<size_t>(k)];
      }
    }
    for (int64_t r = 0; r < p.used_rows; ++r) {
      float sums[kPanel] = {};
      const float* values = rows.data() + r * p.k;
      int64_t k = p.rows % p.k;
      for (int64_t step = 0; step < p.k; ++step) {
        const float* weights = panel.data() + k * kPanel;
        for (int64_t i = 0; i < kPanel; ++i) {
          sums[i] += values[k] * weights[i];
        }
        k = k + 1 < p.k ? k + 1 : 0;
      }
      std::copy_n(sums, width, y + r * p.y_row + n);
    }
  }
  // Nobody reads the rest: a NaN shows who does.
  for (int64_t r = p.used_rows; r < p.rows; ++r) {
    std::memset(y + r * p.y_row, kPoison, static_cast<size_t>(p.n) * sizeof(float));
  }
}

class Emulated : public EmulatedRuntime {
 public:
  explicit Emulated(const EmulatedOptions& options) {
    properties_.name = "emulated";
    properties_.architecture = options.architecture;
    properties_.multiprocessors = options.multiprocessors;
    properties_.shared_bytes = options.architecture == 80   ? 163 << 10
                               : options.architecture == 89 ? 99 << 10
                                                            : 227 << 10;
    properties_.multiprocessor_shared_bytes = properties_.shared_bytes + 1024;
    properties_.total_bytes = options.total_bytes;
    neighbours_ = options.neighbours;
    stream_.set_architecture(options.architecture);
    stream_.StartRecording();
  }
  ~Emulated() override {
    stream_.StopRecording();
    while (!blocks_.empty()) {
      Release(blocks_.begin()->first);
    }
  }

  const DeviceProperties& properties() const override { return properties_; }
  Stream& stream() override { return stream_; }
  const EmulatedCounts& counts() const override { return counts_; }
  void FailNext(const std::string& error) override { error_ = error; }

  absl::StatusOr<void*> AllocateDevice(const char* purpose, int64_t bytes) override {
    NotInACapture();
    if (bytes > FreeBytes()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          properties_.name, ": ", purpose, " needs ", bytes, " bytes, ", FreeBytes(), " are free"));
    }
    used_ += bytes;
    return Take(bytes, true);
  }
  void FreeDevice(void* memory) override {
    NotInACapture();
    DoAll();
    Release(static_cast<uint8_t*>(memory));
  }
  absl::StatusOr<void*> AllocatePinned(const char* /*purpose*/, int64_t bytes) override {
    return Take(bytes, false);
  }
  void FreePinned(void* memory) override { FreeDevice(memory); }
  int64_t FreeBytes() override { return properties_.total_bytes - used_; }

  void CopyToDevice(void* device, const void* host, int64_t bytes) override {
    Copy(device, host, bytes);
  }
  void CopyToHost(void* host, const void* device, int64_t bytes) override {
    Copy(host, device, bytes);
  }
  void CopyOnDevice(void* to, const void* from, int64_t bytes) override { Copy(to, from, bytes); }
  void Zero(void* device, int64_t bytes) override {
    NotInACapture();
    stream_.Run([device, bytes] { std::memset(device, 0, static_cast<size_t>(bytes)); });
  }

  absl::Status Synchronize() override {
    NotInACapture();
    DoAll();
    const std::string error = std::exchange(error_, "");
    return error.empty() ? absl::OkStatus() : absl::InternalError(error);
  }

  void Gemm(const GemmParams& params) override {
    stream_.Run([params] {
      for (int64_t b = 0; b < params.batch; ++b) {
        MultiplyRows(params, b);
      }
    });
  }

  std::unique_ptr<Graph> Capture(const std::function<void()>& work) override {
    Work before = stream_.StopRecording();
    stream_.StartRecording();
    capturing_ = true;
    work();
    capturing_ = false;
    auto graph = std::make_unique<RecordedGraph>();
    graph->work = stream_.StopRecording();
    stream_.StartRecording();
    for (auto& call : before) {
      stream_.Run(std::move(call));
    }
    ++counts_.captures;
    return graph;
  }
  void Run(const Graph& graph) override {
    // A graph may be given up before its work has been done.
    stream_.Run([work = static_cast<const RecordedGraph&>(graph).work] { RunAll(work); });
    ++counts_.graph_runs;
  }

 private:
  struct Block {
    int64_t bytes = 0;
    bool device = false;
  };

  void DoAll() {
    RunAll(stream_.StopRecording());
    stream_.StartRecording();
    for (const auto& [data, block] : blocks_) {
      if (!InArena(block)) {
        CheckGuards(data, block.bytes);
      }
    }
  }

  bool InArena(const Block& block) const { return block.device && neighbours_; }

  // A card refuses to wait or to allocate in a capture, and what is copied is to be new every time.
  void NotInACapture() const { Check(!capturing_, "a graph is made of launches alone"); }

  static void RunAll(const Work& work) {
    for (const auto& call : work) {
      call();
    }
  }

  void Copy(void* to, const void* from, int64_t bytes) {
    NotInACapture();
    CheckRange(to, bytes);
    CheckRange(from, bytes);
    stream_.Run([to, from, bytes] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  }

  // A copy lies in one allocation, as CUDA's do. What is in none is a test's own memory.
  void CheckRange(const void* data, int64_t bytes) const {
    auto found = blocks_.upper_bound(static_cast<uint8_t*>(const_cast<void*>(data)));
    if (found == blocks_.begin()) {
      return;
    }
    --found;
    const int64_t at = static_cast<const uint8_t*>(data) - found->first;
    Check(at >= found->second.bytes || at + bytes <= found->second.bytes,
          "a copy lies in one allocation");
  }

  void* Take(int64_t bytes, bool device) {
    if (device && neighbours_) {
      return TakeNext(bytes);
    }
    const int64_t padded = (bytes + 255) / 256 * 256;
    auto* base = static_cast<uint8_t*>(
        std::aligned_alloc(kGuard, static_cast<size_t>((padded + 3 * kGuard) / kGuard * kGuard)));
    Check(base != nullptr, "a test has the memory it needs");
    std::memset(base, kGuardByte, kGuard);
    std::memset(base + kGuard, kPoison, static_cast<size_t>(bytes));
    std::memset(base + kGuard + bytes, kGuardByte, kGuard);
    blocks_[base + kGuard] = {bytes, device};
    return base + kGuard;
  }

  // Room for all allocations of a test, used from its begin to its end.
  void* TakeNext(int64_t bytes) {
    constexpr int64_t kStep = 512;
    if (arena_ == nullptr) {
      arena_.reset(static_cast<uint8_t*>(std::aligned_alloc(kGuard, kArenaBytes)));
    }
    uint8_t* taken = arena_.get() + arena_used_;
    arena_used_ += (bytes + kStep - 1) / kStep * kStep;
    Check(arena_ != nullptr && arena_used_ <= kArenaBytes, "a test has the memory it needs");
    std::memset(taken, kPoison, static_cast<size_t>(bytes));
    blocks_[taken] = {bytes, true};
    return taken;
  }

  static void CheckGuards(const uint8_t* data, int64_t bytes) {
    for (int64_t i = 0; i < kGuard; ++i) {
      Check(data[i - kGuard] == kGuardByte, "nothing is written before an allocation");
      Check(data[bytes + i] == kGuardByte, "nothing is written behind an allocation");
    }
  }

  void Release(uint8_t* data) {
    const auto found = blocks_.find(data);
    Check(found != blocks_.end(), "memory is freed that was allocated");
    const Block block = found->second;
    used_ -= block.device ? block.bytes : 0;
    blocks_.erase(found);
    if (!InArena(block)) {
      std::free(data - kGuard);
    }
  }

  DeviceProperties properties_;
  Stream stream_;
  EmulatedCounts counts_;
  std::string error_;
  int64_t used_ = 0;
  bool capturing_ = false;
  bool neighbours_ = false;
  std::unique_ptr<uint8_t, decltype(&std::free)> arena_{nullptr, &std::free};
  int64_t arena_used_ = 0;
  std::map<uint8_t*, Block> blocks_;
};

}  // namespace

std::unique_ptr<EmulatedRuntime> MakeEmulatedRuntime(const EmulatedOptions& options) {
  return std::make_unique<Emulated>(options);
}

}  // namespace attnd::kernels::cuda
