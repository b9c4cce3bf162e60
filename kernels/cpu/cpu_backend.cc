#include "kernels/cpu/cpu_backend.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/check.h"
#include "kernels/cpu/append.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/expanded_attention.h"
#include "kernels/cpu/fill_shadow.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/packed_panels.h"
#include "kernels/cpu/project.h"
#include "kernels/cpu/worker_pool.h"

namespace attnd::kernels {
namespace {

constexpr int kMaxThreads = 1024;
// Pairs to rotate that are worth a worker.
constexpr int64_t kRopePairsPerTask = 1 << 14;

class CpuBackend : public Backend {
 public:
  CpuBackend(const KernelTable* table, int threads) : table_(*table), pool_(threads) {}

  std::string Name() const override { return absl::StrCat("cpu:", table_.name); }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(const char* purpose,
                                                         int64_t bytes) override {
    return MapMemory(purpose, bytes);
  }

  absl::StatusOr<std::unique_ptr<PackedWeight>> Pack(const WeightView& weight) override {
    auto packed = PackPanels(weight);
    if (!packed.ok()) {
      return packed.status();
    }
    return std::unique_ptr<PackedWeight>(std::move(*packed));
  }

  absl::Status Prepare(const BatchLimits& limits, const LocalShape* local,
                       const GlobalShape* global) override {
    absl::Status status =
        project_scratch_.Allocate("projection scratch", pool_.threads() * kProjectScratch);
    status.Update(workspace_.Allocate(limits, local, global, pool_.threads()));
    return status;
  }

  void Upload(void* device, const void* host, int64_t bytes) override { Copy(device, host, bytes); }
  void Download(void* host, const void* device, int64_t bytes) override {
    Copy(host, device, bytes);
  }
  void Copy(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) {
      std::memmove(to, from, static_cast<size_t>(bytes));
    }
  }

  void Project(const ProjectParams& params) override {
    Check(project_scratch_.size() > 0, "Prepare() comes before any operation");
    ProjectParallel(table_, pool_, params, project_scratch_.get());
  }

  void Rope(const RopeParams& params) override {
    const int64_t pairs = params.heads * params.half;
    const int64_t rows_per_task = pairs == 0 ? 1 : kRopePairsPerTask / pairs + 1;
    const int64_t tasks = (params.rows + rows_per_task - 1) / rows_per_task;
    pool_.ParallelFor(tasks, [&](int64_t task, int /*worker*/) {
      const int64_t end = std::min((task + 1) * rows_per_task, params.rows);
      for (int64_t row = task * rows_per_task; row < end; ++row) {
        table_.rope(params.x + row * pairs * 2, params.cos + row * params.half,
                    params.sin + row * params.half, params.heads, params.half);
      }
    });
  }

  void AppendLocal(const AppendLocalParams& params) override { AppendLocalRows(pool_, params); }
  void AppendGlobal(const AppendGlobalParams& params) override { AppendGlobalRows(pool_, params); }

  void LocalAttention(const LocalAttentionParams& params) override {
    LocalAttentionParallel(table_, pool_, workspace_, params);
  }
  void LatentAttention(const LatentAttentionParams& params) override {
    LatentAttentionParallel(table_, pool_, workspace_, params);
  }
  void ExpandedAttention(const ExpandedAttentionParams& params) override {
    ExpandedAttentionParallel(table_, pool_, workspace_, params, project_scratch_.get());
  }
  void FillShadow(const FillShadowParams& params) override {
    FillShadowParallel(table_, pool_, workspace_, params, project_scratch_.get());
  }
  void ShadowAttention(const ShadowAttentionParams& params) override {
    ShadowAttentionParallel(table_, pool_, workspace_, params);
  }
  void Synchronize() override {}

 private:
  const KernelTable& table_;
  WorkerPool pool_;
  AttentionWorkspace workspace_;
  AlignedArray<float> project_scratch_;
};

}  // namespace

std::vector<std::string> CpuIsas() {
  std::vector<std::string> names;
  for (const KernelTable* table : KernelTables()) {
    names.emplace_back(table->name);
  }
  return names;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", options.threads, "; expected 1 to ", kMaxThreads));
  }
  for (const KernelTable* table : KernelTables()) {
    if (options.isa == "best" || options.isa == table->name) {
      return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(table, options.threads));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("isa is '", options.isa,
                                                 "'; this machine and build have best, ",
                                                 absl::StrJoin(CpuIsas(), ", ")));
}

}  // namespace attnd::kernels
