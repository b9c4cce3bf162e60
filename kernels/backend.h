// What a device must do for core: keep weights and pages, and run the operations of a layer.
//
// Plan, then run: Prepare() is told the largest batch that will ever come and takes all scratch
// memory; afterwards no operation allocates. Operations are called from one thread (the
// engine's), in order, and their effects are visible to the next; Synchronize() makes them
// visible to the host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/params.h"

namespace attnd::kernels {

// A weight in the backend's own layout, in the backend's memory.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  virtual int64_t bytes() const = 0;
};

// Memory of the device; freed with the object.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual uint8_t* data() = 0;
  virtual int64_t bytes() const = 0;
  // Tells the system that [offset, offset + bytes) is no longer needed; its contents are then
  // undefined. Memory returns to the system where the device can do that.
  virtual void Discard(int64_t offset, int64_t bytes) = 0;
};

// The largest batch that will be asked for.
struct BatchLimits {
  int64_t max_rows = 0;       // query rows in a batch, all sequences together
  int64_t max_sequences = 0;  // sequences in a batch
  int64_t max_keys = 0;       // keys that one row can see
};

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu:avx2": the device as GetModel, the ready line and the logs name it.
  virtual std::string Name() const = 0;
  // Whether FillShadow() and ShadowAttention() may be called.
  virtual bool HasShadows() const { return true; }

  // Zeroed lazily where the system does that; `purpose` names it in the error.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(const char* purpose,
                                                                 int64_t bytes) = 0;
  // Converts nothing: the weight stays of its dtype.
  virtual absl::StatusOr<std::unique_ptr<PackedWeight>> Pack(const WeightView& weight) = 0;

  // Takes the scratch memory for batches within `limits` on layers of these shapes (either may
  // be null when the model has no such layer). Called once, before any operation.
  virtual absl::Status Prepare(const BatchLimits& limits, const LocalShape* local,
                               const GlobalShape* global) = 0;

  // Host to device, device to host, and within the device. `host` of an upload may be changed at
  // once; that of a download is filled when Synchronize() returns, and no operation comes between.
  virtual void Upload(void* device, const void* host, int64_t bytes) = 0;
  virtual void Download(void* host, const void* device, int64_t bytes) = 0;
  virtual void Copy(void* to, const void* from, int64_t bytes) = 0;

  // Around the operations of a layer on a batch of so many rows: a device may keep what it is asked
  // for in between, and run it as one when the same comes again.
  virtual void BeginLayer(int64_t /*rows*/) {}
  virtual void EndLayer() {}

  virtual void Project(const ProjectParams& params) = 0;
  virtual void Rope(const RopeParams& params) = 0;
  virtual void AppendLocal(const AppendLocalParams& params) = 0;
  virtual void AppendGlobal(const AppendGlobalParams& params) = 0;
  virtual void LocalAttention(const LocalAttentionParams& params) = 0;
  virtual void LatentAttention(const LatentAttentionParams& params) = 0;
  virtual void ExpandedAttention(const ExpandedAttentionParams& params) = 0;
  virtual void FillShadow(const FillShadowParams& params) = 0;
  virtual void ShadowAttention(const ShadowAttentionParams& params) = 0;
  // A device that fails, or has failed before, ends the process: what it held is lost.
  virtual void Synchronize() = 0;
};

}  // namespace attnd::kernels
