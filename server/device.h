// Devices as --device names them: what this build has, and the one that serves.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/host_limits.h"
#include "kernels/backend.h"
#include "kernels/support_matrix.h"

namespace attnd::server {

struct Config;

// A device that was opened.
struct OpenedDevice {
  std::string name;  // "cpu", "cuda:0": as --device names it
  const kernels::SupportRow* support = nullptr;
  std::unique_ptr<kernels::Backend> backend;
  // Of the device, whose origin the errors name; asked before anything large is taken.
  MemoryLimit memory;
  std::string default_cache_dtype;
  double default_chunk_gflop = 0;
  // The part of the memory left beside the weights that the cache takes by default.
  double default_cache_share = 0;
  // Why auto did not take what it tried before: lines for the log; empty when it took the first.
  std::string passed_over;
};

// A kind of device of this build. `open` fills in the backend and its memory; its error is one line
// without the flag.
struct DeviceKind {
  const kernels::SupportRow* support = nullptr;
  std::string name;       // "cuda"; what --device begins with
  bool numbered = false;  // --device=NAME:N
  std::string cache_dtype;
  double chunk_gflop = 0;
  double cache_share = 0;
  std::function<absl::Status(const Config&, int index, OpenedDevice*)> open;
};

// Of every build. `kinds` below are in the order in which --device=auto tries them.
DeviceKind CpuDevice();

// What can be said of --device and --cache_dtype before a device is opened.
absl::Status ValidateDevice(const Config& config, const std::vector<DeviceKind>& kinds);

// --device; for auto the first kind that answers. The error is one line that begins with the flag.
absl::StatusOr<OpenedDevice> OpenDevice(const Config& config, const std::vector<DeviceKind>& kinds);

}  // namespace attnd::server
