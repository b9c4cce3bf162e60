// The CUDA backend on the emulated device as tests of kernels use backends: every operation has run
// when it returns, and its operands may be the test's own memory.
#pragma once

#include <memory>
#include <string>

#include "cuda_emulation/emulated_runtime.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"

namespace attnd::kernels::cuda {

class PromptBackend : public Backend {
 public:
  explicit PromptBackend(const CudaOptions& options, const EmulatedOptions& device = {});

  const EmulatedRuntime& runtime() const { return *runtime_; }

  std::string Name() const override { return backend_->Name(); }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(const char* purpose,
                                                         int64_t bytes) override {
    return backend_->Allocate(purpose, bytes);
  }
  absl::StatusOr<std::unique_ptr<PackedWeight>> Pack(const WeightView& weight) override {
    return backend_->Pack(weight);
  }
  absl::Status Prepare(const BatchLimits& limits, const LocalShape* local,
                       const GlobalShape* global) override {
    return backend_->Prepare(limits, local, global);
  }
  void Upload(void* device, const void* host, int64_t bytes) override {
    backend_->Upload(device, host, bytes);
    Synchronize();
  }
  void Download(void* host, const void* device, int64_t bytes) override {
    backend_->Download(host, device, bytes);
    Synchronize();
  }
  void Copy(void* to, const void* from, int64_t bytes) override {
    backend_->Copy(to, from, bytes);
    Synchronize();
  }
  void Project(const ProjectParams& params) override {
    backend_->Project(params);
    Synchronize();
  }
  void Rope(const RopeParams& params) override {
    backend_->Rope(params);
    Synchronize();
  }
  void AppendLocal(const AppendLocalParams& params) override {
    backend_->AppendLocal(params);
    Synchronize();
  }
  void AppendGlobal(const AppendGlobalParams& params) override {
    backend_->AppendGlobal(params);
    Synchronize();
  }
  void LocalAttention(const LocalAttentionParams& params) override {
    backend_->LocalAttention(params);
    Synchronize();
  }
  void LatentAttention(const LatentAttentionParams& params) override {
    backend_->LatentAttention(params);
    Synchronize();
  }
  void ExpandedAttention(const ExpandedAttentionParams& params) override {
    backend_->ExpandedAttention(params);
    Synchronize();
  }
  void FillShadow(const FillShadowParams& params) override { backend_->FillShadow(params); }
  void ShadowAttention(const ShadowAttentionParams& params) override {
    backend_->ShadowAttention(params);
  }
  void Synchronize() override { backend_->Synchronize(); }

 private:
  EmulatedRuntime* runtime_ = nullptr;
  std::unique_ptr<Backend> backend_;
};

// Small blocks and little room: what a card does in a large batch happens in a small one.
CudaOptions SmallOptions();

}  // namespace attnd::kernels::cuda
