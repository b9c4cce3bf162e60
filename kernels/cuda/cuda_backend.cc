#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/cuda_expand.h"
#include "kernels/cuda/cuda_project.h"
#include "kernels/cuda/device_batch.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/graph_cache.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/weights.h"

namespace attnd::kernels::cuda {
namespace {

// A model's layers times the batch sizes that take turns; a graph of a layer takes some 100 KiB.
constexpr int64_t kMaxGraphs = 1024;

class CudaMemory : public DeviceMemory {
 public:
  explicit CudaMemory(OwnedDeviceMemory memory) : memory_(std::move(memory)) {}
  uint8_t* data() override { return memory_.data(); }
  int64_t bytes() const override { return memory_.bytes(); }
  void Discard(int64_t /*offset*/, int64_t /*bytes*/) override {}  // the card has no other user

 private:
  OwnedDeviceMemory memory_;
};

class CudaBackend : public Backend {
 public:
  CudaBackend(std::shared_ptr<Runtime> runtime, std::unique_ptr<Staging> staging,
              const CudaOptions& options)
      : runtime_(std::move(runtime)),
        options_(options),
        staging_(std::move(staging)),
        weights_(runtime_, staging_.get()),
        projector_(runtime_, options.deterministic),
        attention_(runtime_, {options.deterministic, options.tensor_cores, options.partial_bytes}),
        expansion_(runtime_, staging_.get(), &projector_, &attention_, options.expand_keys),
        graphs_(kMaxGraphs) {}

  std::string Name() const override { return runtime_->properties().name; }
  bool HasShadows() const override { return false; }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(const char* purpose,
                                                         int64_t bytes) override {
    OwnedDeviceMemory memory;
    if (absl::Status status = memory.Allocate(runtime_, purpose, bytes); !status.ok()) {
      return status;
    }
    return std::unique_ptr<DeviceMemory>(std::make_unique<CudaMemory>(std::move(memory)));
  }

  absl::StatusOr<std::unique_ptr<PackedWeight>> Pack(const WeightView& weight) override {
    return weights_.Pack(weight);
  }

  absl::Status Prepare(const BatchLimits& limits, const LocalShape* local,
                       const GlobalShape* global) override {
    Synchronize();
    graphs_.Clear();
    absl::Status status = projector_.Prepare(weights_.max_in(), weights_.max_out());
    status.Update(batches_.Prepare(runtime_, limits));
    status.Update(attention_.Prepare(limits, local, global));
    if (global != nullptr) {
      status.Update(expansion_.Prepare(limits, *global));
    }
    return status;
  }

  void Upload(void* device, const void* host, int64_t bytes) override {
    StopRecording();
    staging_->Upload(device, host, bytes);
  }
  void Download(void* host, const void* device, int64_t bytes) override {
    staging_->Download(host, device, bytes);
  }
  void Copy(void* to, const void* from, int64_t bytes) override {
    StopRecording();
    staging_->Flush();
    if (bytes > 0) {
      runtime_->CopyOnDevice(to, from, bytes);
    }
  }

  void BeginLayer(int64_t rows) override {
    if (options_.graphs && rows <= kGraphRows) {
      recording_ = true;
      calls_ = 0;
      operations_.clear();
      batches_.BeginGraph();
    }
  }
  void EndLayer() override;

  void Project(const ProjectParams& params) override { Do(params); }
  void Rope(const RopeParams& params) override { Do(params); }
  void AppendLocal(const AppendLocalParams& params) override { Do(params); }
  void AppendGlobal(const AppendGlobalParams& params) override { Do(params); }
  void LocalAttention(const LocalAttentionParams& params) override;
  void LatentAttention(const LatentAttentionParams& params) override;
  void ExpandedAttention(const ExpandedAttentionParams& params) override;

  void FillShadow(const FillShadowParams& /*params*/) override { NoShadows(); }
  void ShadowAttention(const ShadowAttentionParams& /*params*/) override { NoShadows(); }

  void Synchronize() override {
    StopRecording();
    if (absl::Status status = staging_->Finish(); !status.ok()) {
      // The card's context is gone with all sessions: only a new process can go on.
      std::fprintf(stderr, "%s: %s\n", Name().c_str(), std::string(status.message()).c_str());
      Check(false, "work on the device succeeds");
    }
  }

 private:
  [[noreturn]] static void NoShadows() {
    CheckFailed("this device is asked for no shadows", __FILE__, __LINE__);
  }

  void Do(const Operation& operation) {
    if (recording_) {
      operations_.push_back(operation);
    } else {
      staging_->Flush();
      Launch(operation);
    }
  }
  // What was recorded runs as it is.
  void StopRecording() {
    if (std::exchange(recording_, false)) {
      staging_->Flush();
      LaunchAll(operations_);
    }
  }
  void LaunchAll(const std::vector<Operation>& operations) {
    for (const Operation& operation : operations) {
      Launch(operation);
    }
  }
  void Launch(const Operation& operation) {
    std::visit([this](const auto& params) { LaunchOne(params); }, operation);
  }
  void LaunchOne(const ProjectParams& params) { projector_.Project(params); }
  void LaunchOne(const RopeParams& params) {
    LaunchRope(runtime_->stream(), Grid(params.rows * params.heads), params);
  }
  void LaunchOne(const AppendLocalParams& params) {
    LaunchAppendLocal(runtime_->stream(), Grid(params.target.rows * params.shape.heads_kv * 2),
                      params);
  }
  void LaunchOne(const AppendGlobalParams& params) {
    LaunchAppendGlobal(runtime_->stream(), Grid(params.target.rows), params);
  }
  void LaunchOne(const LocalOperation& operation) { attention_.Launch(operation); }
  void LaunchOne(const LatentOperation& operation) { attention_.Launch(operation); }
  int Grid(int64_t items) const { return GridFor(*runtime_, items); }

  // Calls attend(DeviceBatch) for the batch, in parts where its page tables need more room.
  template <typename F>
  void ForBatches(const AttentionBatch& batch, const Classify& classify, const F& attend) {
    if (recording_ && (calls_ == kGraphCalls || !batches_.FitsGraph(batch))) {
      StopRecording();
    }
    const int call = recording_ ? ++calls_ : 0;
    for (int64_t next = 0; next < batch.num_sequences;) {
      attend(batches_.Put(staging_.get(), batch, classify, call, &next));
    }
  }

  std::shared_ptr<Runtime> runtime_;
  const CudaOptions options_;
  std::unique_ptr<Staging> staging_;
  WeightStore weights_;
  Projector projector_;
  CudaAttention attention_;
  CudaExpansion expansion_;
  BatchStore batches_;
  GraphCache graphs_;
  bool recording_ = false;
  int calls_ = 0;  // of attention, since recording began
  std::vector<Operation> operations_;
};

void CudaBackend::EndLayer() {
  if (!std::exchange(recording_, false)) {
    return;
  }
  staging_->Flush();
  GraphCache::Entry& entry = graphs_.Find(operations_);
  // Capturing takes longer than launching: what comes once is launched.
  if (++entry.uses == 2) {
    entry.graph = runtime_->Capture([&] { LaunchAll(operations_); });
  }
  if (entry.graph != nullptr) {
    runtime_->Run(*entry.graph);
  } else {
    LaunchAll(operations_);
  }
}

void CudaBackend::LocalAttention(const LocalAttentionParams& params) {
  const AttentionBatch& batch = params.batch;
  ForBatches(batch, attention_.ClassifyLocal(params.shape, batch.dtype),
             [&](const DeviceBatch& put) {
               Do(LocalOperation{params.shape, batch.dtype, batch.scale, put, params.query,
                                 params.output});
             });
}

void CudaBackend::LatentAttention(const LatentAttentionParams& params) {
  const AttentionBatch& batch = params.batch;
  ForBatches(batch, attention_.ClassifyLatent(params.shape, batch.dtype),
             [&](const DeviceBatch& put) {
               Do(LatentOperation{params.shape, batch.dtype, batch.scale, put, params.query,
                                  params.rope_query, params.output});
             });
}

void CudaBackend::ExpandedAttention(const ExpandedAttentionParams& params) {
  StopRecording();  // how many blocks there are depends on the history
  ForBatches(
      params.batch, [](int64_t, int64_t, int64_t) { return 0; },
      [&](const DeviceBatch& put) {
        staging_->Flush();
        const std::vector<SequenceView> views = batches_.views();
        for (const SequenceView& view : views) {
          expansion_.Run(params, put.view, view);
        }
      });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<Runtime> runtime,
                                                         const CudaOptions& options) {
  Check(options.expand_keys > 0 && options.expand_keys % kGemmRows == 0,
        "blocks of expanded keys are whole products");
  std::shared_ptr<Runtime> shared = std::move(runtime);
  absl::StatusOr<std::unique_ptr<Staging>> staging = Staging::Create(shared);
  if (!staging.ok()) {
    return staging.status();
  }
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(std::move(shared), *std::move(staging), options));
}

}  // namespace attnd::kernels::cuda
