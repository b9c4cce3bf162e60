#include "server/device.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/host_limits.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/config.h"

namespace attnd::server {
namespace {

constexpr int kMaxCards = 64;

absl::Status Bad(const std::string& flag, const std::string& value, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": ", why));
}

absl::Status OpenCpu(const Config& config, int /*index*/, OpenedDevice* device) {
  const int64_t threads =
      config.threads > 0 ? config.threads : std::min<int64_t>(UsableCpus(), 1024);
  absl::StatusOr<std::unique_ptr<kernels::Backend>> backend =
      kernels::MakeCpuBackend({static_cast<int>(threads), config.isa});
  if (!backend.ok()) {
    return backend.status();
  }
  device->backend = *std::move(backend);
  device->memory = UsableMemory();
  return absl::OkStatus();
}

// The kind and the number that --device=NAME or NAME:N means.
struct Choice {
  const DeviceKind* kind = nullptr;
  int index = 0;
};
std::optional<Choice> Choose(const std::string& device, const std::vector<DeviceKind>& kinds) {
  for (const DeviceKind& kind : kinds) {
    if (device == kind.name && !kind.numbered) {
      return Choice{&kind, 0};
    }
    const std::string prefix = kind.name + ":";
    int index = -1;
    if (kind.numbered && device.rfind(prefix, 0) == 0 &&
        absl::SimpleAtoi(device.substr(prefix.size()), &index) && index >= 0 && index < kMaxCards) {
      return Choice{&kind, index};
    }
  }
  return std::nullopt;
}

std::string Supported(const std::vector<DeviceKind>& kinds) {
  std::vector<std::string> names = {"auto"};
  for (auto kind = kinds.rbegin(); kind != kinds.rend(); ++kind) {
    names.push_back(kind->numbered ? kind->name + ":N" : kind->name);
  }
  return absl::StrJoin(names, ", ");
}

bool SupportsCache(const DeviceKind& kind, const std::string& name) {
  const std::optional<DType> dtype = DTypeFromName(name);
  const std::vector<DType>& dtypes = kind.support->cache_dtypes;
  return dtype.has_value() && std::find(dtypes.begin(), dtypes.end(), *dtype) != dtypes.end();
}

// OK when one of the kinds takes --cache_dtype.
absl::Status CheckCacheDtype(const Config& config, const std::vector<const DeviceKind*>& kinds) {
  std::vector<std::string> supported;
  for (const DeviceKind* kind : kinds) {
    if (config.cache_dtype.empty() || SupportsCache(*kind, config.cache_dtype)) {
      return absl::OkStatus();
    }
    supported.push_back(absl::StrCat("device ", kind->name, " supports ",
                                     kernels::DTypeList(kind->support->cache_dtypes)));
  }
  return Bad("cache_dtype", config.cache_dtype, absl::StrJoin(supported, "; "));
}

// Opened, but not yet held against the configuration.
absl::StatusOr<OpenedDevice> Open(const Config& config, const Choice& choice) {
  const DeviceKind& kind = *choice.kind;
  OpenedDevice device;
  device.name = kind.numbered ? absl::StrCat(kind.name, ":", choice.index) : kind.name;
  device.support = kind.support;
  device.default_cache_dtype = kind.cache_dtype;
  device.default_chunk_gflop = kind.chunk_gflop;
  device.default_cache_share = kind.cache_share;
  if (absl::Status status = kind.open(config, choice.index, &device); !status.ok()) {
    return Bad("device", device.name, std::string(status.message()));
  }
  return device;
}

absl::Status CheckOpened(const Config& config, const DeviceKind& kind, const OpenedDevice& device) {
  if (config.mla_shadow_bytes > 0 && !device.backend->HasShadows()) {
    return Bad("mla_shadow_bytes", absl::StrCat(config.mla_shadow_bytes),
               absl::StrCat("device ", device.name, " keeps no shadows; expected 0"));
  }
  return CheckCacheDtype(config, {&kind});
}

}  // namespace

DeviceKind CpuDevice() {
  return {kernels::FindDevice("cpu"), "cpu", false, "f32", 5, 0.5, OpenCpu};
}

absl::Status ValidateDevice(const Config& config, const std::vector<DeviceKind>& kinds) {
  if (config.device == "auto") {
    std::vector<const DeviceKind*> all;
    for (auto kind = kinds.rbegin(); kind != kinds.rend(); ++kind) {
      all.push_back(&*kind);
    }
    return CheckCacheDtype(config, all);
  }
  const std::optional<Choice> choice = Choose(config.device, kinds);
  if (!choice.has_value()) {
    return Bad("device", config.device, "this build supports " + Supported(kinds));
  }
  return CheckCacheDtype(config, {choice->kind});
}

absl::StatusOr<OpenedDevice> OpenDevice(const Config& config,
                                        const std::vector<DeviceKind>& kinds) {
  std::vector<Choice> choices;
  if (config.device == "auto") {
    for (const DeviceKind& kind : kinds) {
      choices.push_back({&kind, 0});
    }
  } else if (const std::optional<Choice> choice = Choose(config.device, kinds)) {
    choices.push_back(*choice);
  } else {
    return ValidateDevice(config, kinds);
  }
  std::string failed;
  for (const Choice& choice : choices) {
    absl::StatusOr<OpenedDevice> device = Open(config, choice);
    if (device.ok()) {
      if (absl::Status status = CheckOpened(config, *choice.kind, *device); !status.ok()) {
        return status;
      }
      device->passed_over = failed;
      return device;
    }
    absl::StrAppend(&failed, failed.empty() ? "" : "; ", device.status().message());
  }
  return absl::InvalidArgumentError(failed);
}

}  // namespace attnd::server
