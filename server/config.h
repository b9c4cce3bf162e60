// Every knob of the server: its default, its unit, its reason and its limits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/engine.h"
#include "server/device.h"
#include "server/flags.h"

namespace attnd::server {

struct Config {
  // Commands.
  bool help = false;
  bool version = false;
  bool check = false;
  bool dump_flags = false;
  std::string flagfile;

  // Model.
  std::string model = "builtin:apex1-small";
  std::string weights = "random:1";
  std::string weight_dtype = "file";

  // Device.
  std::string device = "auto";
  int64_t threads = 0;  // 0: the CPUs that the cgroup allows
  std::string isa = "best";
  bool deterministic = true;

  // Addresses.
  std::vector<std::string> listen = {"127.0.0.1:8470"};
  std::string http = "127.0.0.1:9470";
  bool reflection = true;

  // Cache and sessions.
  std::string cache_dtype;     // empty: the device's default
  int64_t kv_cache_bytes = 0;  // 0: a part of the memory that is left
  int64_t mla_shadow_bytes = 0;
  int64_t max_rewind = 64;  // tokens
  int64_t idle_ttl_ns = 600'000'000'000;
  int64_t max_idle_ttl_ns = 86'400'000'000'000;
  int64_t max_sessions = 100'000;
  std::string evict = "none";

  // Scheduling and limits.
  int64_t max_batch_rows = 1024;
  int64_t prefill_chunk_rows = 512;
  double prefill_chunk_gflop = 0;  // 0: the device's default
  int64_t max_queue = 4096;
  int64_t max_inflight_bytes = int64_t{1} << 30;
  int64_t max_stream_steps = 64;
  int64_t max_message_bytes = int64_t{256} << 20;

  // Stopping.
  double drain_seconds = 5;
  double shutdown_grace_seconds = 30;

  // Security.
  std::string tls_cert, tls_key, tls_client_ca;
  std::string auth_tokens_file;

  std::string log_format = "text";
  std::string log_requests = "sampled";
};

// The table of flags over `config`, which must outlive it.
FlagTable MakeFlagTable(Config* config);

// What one flag's limits cannot say: combinations, addresses, values that are not supported yet.
// OK, or one line with the flag, the value and what is supported.
absl::Status ValidateConfig(const Config& config, const std::vector<DeviceKind>& devices);

// The engine's part. `config` is valid and its automatic values have been filled in.
EngineOptions MakeEngineOptions(const Config& config);

}  // namespace attnd::server
