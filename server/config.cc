// Every knob of the server.
#include "server/config.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/listen_address.h"

namespace attnd::server {
namespace {

constexpr double kTiB = 1099511627776.0;
constexpr double kDay = 86'400e9;  // ns

std::vector<Flag> CommandFlags(Config& c) {
  using enum FlagKind;
  const char* group = "Commands";
  return {
      {group, "help", kBool, &c.help, "Prints this and exits.", 0, 0, {}, nullptr, false},
      {group,
       "version",
       kBool,
       &c.version,
       "Prints the version and exits.",
       0,
       0,
       {},
       nullptr,
       false},
      {group,
       "check",
       kBool,
       &c.check,
       "Validates the configuration and the weights, prints the planned bytes and exits.",
       0,
       0,
       {},
       nullptr,
       false},
      {group,
       "dump_flags",
       kBool,
       &c.dump_flags,
       "Prints this table as JSON and exits, for tools that compare documents with it.",
       0,
       0,
       {},
       nullptr,
       false},
      {group,
       "flagfile",
       kText,
       &c.flagfile,
       "Reads flags from a file: one --name=value a line, # begins a comment. Flags to its right "
       "override it.",
       0,
       0,
       {},
       nullptr,
       false},
  };
}

std::vector<Flag> ModelFlags(Config& c) {
  using enum FlagKind;
  return {
      {"Model", "model", kText, &c.model,
       "The model: a YAML file with the keys of model: and attention:, or builtin:apex1-tiny, "
       "-small, -medium or -large."},
      {"Model", "weights", kText, &c.weights,
       "The weights: a safetensors file, an index JSON of shards, or random:SEED (the same weights "
       "on every machine, for trials)."},
      {"Model",
       "weight_dtype",
       kChoice,
       &c.weight_dtype,
       "Element type in which weights are held; file keeps that of the file. Two bytes halve the "
       "memory and the time of small batches.",
       0,
       0,
       {"file", "f32", "bf16", "f16"}},
      {"Device", "device", kText, &c.device,
       "auto, cpu or cuda:N. auto takes the first CUDA card where this build has CUDA and a card "
       "answers, else the CPU."},
      {"Device",
       "threads",
       kInt,
       &c.threads,
       "Threads that compute. The default is the number of CPUs that the affinity mask and the "
       "cgroup allow; more only wait for each other.",
       1,
       1024,
       {},
       "auto"},
      {"Device", "isa", kText, &c.isa,
       "Instruction set of the CPU's kernels. best takes the widest that the machine has; a name "
       "(avx3, avx2, sse4, neon, scalar) forces one, for comparisons."},
      {"Device", "deterministic", kBool, &c.deterministic,
       "A row's bits never depend on the batch. Off, a CUDA card may choose products and splits by "
       "the batch; the CPU never does, but for --mla_shadow_bytes."},
  };
}

std::vector<Flag> AddressFlags(Config& c) {
  using enum FlagKind;
  return {
      {"Addresses", "listen", kList, &c.listen,
       "gRPC address: host:port, [ipv6]:port or unix:path. Port 0 takes a free one and the ready "
       "line names it. The default is for this machine alone: nothing is exposed unasked."},
      {"Addresses", "http", kText, &c.http,
       "HTTP address of the status page at /, of /metrics, /healthz and /readyz; host:port. It "
       "asks "
       "for no token. Empty turns it off."},
      {"Addresses", "reflection", kBool, &c.reflection,
       "Serves gRPC reflection, so that tools can list the methods. Costs one waiting thread."},
  };
}

std::vector<Flag> CacheFlags(Config& c) {
  using enum FlagKind;
  return {
      {"Cache and sessions",
       "cache_dtype",
       kText,
       &c.cache_dtype,
       "Element type of the cache: f32, bf16, f16, int8 (CPU) or fp8_e4m3 (CUDA). The default on "
       "the CPU is f32, which adds no rounding, on CUDA bf16; two bytes hold twice the tokens. "
       "int8 has a scale to each row of a head and fp8_e4m3 to each latent; both keep the rotary "
       "part in bf16.",
       0,
       0,
       {},
       "auto"},
      {"Cache and sessions",
       "kv_cache_bytes",
       kBytes,
       &c.kv_cache_bytes,
       "Budget for all pages of all sessions. The default is half of what the cgroup or the "
       "machine has left beside the weights, and memory is touched only as rows arrive; on a CUDA "
       "card three quarters of what is left.",
       1 << 20,
       1024 * kTiB,
       {},
       "auto"},
      {"Cache and sessions", "mla_shadow_bytes", kBytes, &c.mla_shadow_bytes,
       "Memory for the decompressed keys and values of sessions that decode often on global "
       "layers, beside --kv_cache_bytes. Where latents are wide, as in apex1-large, their "
       "attention takes half the time; not in apex1-medium. 0 turns it off. With it a decoded "
       "row's rounding depends on what has room here: answers on global layers are no longer "
       "the same bits whatever else the server does.",
       0, 1024 * kTiB},
      {"Cache and sessions", "max_rewind", kInt, &c.max_rewind,
       "Tokens behind the window that a local layer keeps, so that a cut of so many is always "
       "accepted. 64 is one page, enough for speculative decoding.",
       0, 1 << 20},
      {"Cache and sessions", "idle_ttl", kDuration, &c.idle_ttl_ns,
       "A session without a call for so long is closed, unless it was created with a time of its "
       "own.",
       1e6, 3650 * kDay},
      {"Cache and sessions", "max_idle_ttl", kDuration, &c.max_idle_ttl_ns,
       "The longest idle time that a session may ask for.", 1e6, 3650 * kDay},
      {"Cache and sessions", "max_sessions", kInt, &c.max_sessions,
       "Sessions held at once; bounds the memory that empty sessions take.", 1, 1e9},
      {"Cache and sessions",
       "evict",
       kChoice,
       &c.evict,
       "What happens when no page is free. none fails the step with CACHE_FULL; idle_lru ends "
       "sessions without max_tokens and without a step under way, the longest idle first: their "
       "clients get SESSION_EVICTED and must start anew.",
       0,
       0,
       {"none", "idle_lru"}},
  };
}

std::vector<Flag> LimitFlags(Config& c) {
  using enum FlagKind;
  const char* group = "Scheduling and limits";
  return {
      {group, "max_batch_rows", kInt, &c.max_batch_rows,
       "Rows computed together, all sessions of a batch. Larger calls are split. 1024 rows keep "
       "the matrix products efficient and bound the scratch memory.",
       1, 65536},
      {group, "prefill_chunk_rows", kInt, &c.prefill_chunk_rows,
       "Rows of one prefill computed before other sessions get their turn, at most "
       "--max_batch_rows. Smaller shortens the "
       "wait of decodes beside a prefill, larger computes it faster.",
       1, 65536},
      {group,
       "prefill_chunk_gflop",
       kReal,
       &c.prefill_chunk_gflop,
       "Likewise in 10^9 floating-point operations by the planner's estimate: late rows of a long "
       "history cost more than early ones. The default is 5 on the CPU and 2000 on CUDA. The cost "
       "of 48 first rows is always allowed, for a large layer's weights are streamed for each "
       "chunk.",
       0.001,
       1e9,
       {},
       "auto"},
      {group, "max_queue", kInt, &c.max_queue,
       "Steps waiting for the engine, all connections; beyond it QUEUE_FULL. Bounds waiting time "
       "and memory.",
       1, 1e6},
      {group, "max_inflight_bytes", kBytes, &c.max_inflight_bytes,
       "Memory of steps from their arrival until their answers have left: rows, answers and "
       "messages; and of the parts of exported and imported sessions. Beyond it QUEUE_FULL. A "
       "single step may take more. 1 GiB is 16384 rows of 8192 float32, there and back.",
       1 << 20, int64_t{1} << 45},
      {group, "max_stream_steps", kInt, &c.max_stream_steps,
       "Unanswered steps of one Steps stream, beyond which it is not read further. 64 hides the "
       "round trip; more only queues.",
       1, 65536},
      {group, "max_message_bytes", kBytes, &c.max_message_bytes,
       "Largest message received or sent. 256 MiB is 8192 rows of 8192 float32.", 65536,
       2147483647.0 - 1048576},
  };
}

std::vector<Flag> StopFlags(Config& c) {
  using enum FlagKind;
  return {
      {"Stopping", "drain_seconds", kReal, &c.drain_seconds,
       "After SIGTERM the server reports not ready but serves for so long, while balancers notice.",
       0, 86400},
      {"Stopping", "shutdown_grace_seconds", kReal, &c.shutdown_grace_seconds,
       "Then new steps are refused and running ones have so long to finish.", 0, 86400},
  };
}

std::vector<Flag> SecurityFlags(Config& c) {
  using enum FlagKind;
  return {
      {kSecurityGroup,
       "tls_cert",
       kText,
       &c.tls_cert,
       "PEM certificate chain; turns TLS on for every --listen, with --tls_key.",
       0,
       0,
       {},
       "off"},
      {kSecurityGroup,
       "tls_key",
       kText,
       &c.tls_key,
       "PEM private key of --tls_cert.",
       0,
       0,
       {},
       "off"},
      {kSecurityGroup,
       "tls_client_ca",
       kText,
       &c.tls_client_ca,
       "PEM certificates of the authorities whose client certificates are required.",
       0,
       0,
       {},
       "off"},
      {kSecurityGroup,
       "auth_tokens_file",
       kText,
       &c.auth_tokens_file,
       "File of bearer tokens, a line each: tenant, space, token. Turns authentication on; a "
       "tenant sees its own sessions alone.",
       0,
       0,
       {},
       "off"},
      {"Logging",
       "log_format",
       kChoice,
       &c.log_format,
       "Form of the log on stderr: a line of text or of JSON an event.",
       0,
       0,
       {"text", "json"}},
      {"Logging",
       "log_requests",
       kChoice,
       &c.log_requests,
       "Requests that get a line in the log, with their timings. sampled: those whose metadata has "
       "a W3C traceparent with the sampled flag; their callers choose how many. off: none.",
       0,
       0,
       {"off", "sampled"}},
  };
}

absl::Status Bad(const std::string& flag, const std::string& value, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": ", why));
}

absl::Status ValidateSupported(const Config& config) {
  const std::vector<std::string> isas = kernels::CpuIsas();
  if (config.isa != "best" && std::find(isas.begin(), isas.end(), config.isa) == isas.end()) {
    return Bad("isa", config.isa, "this machine and build have best, " + absl::StrJoin(isas, ", "));
  }
  return absl::OkStatus();
}

absl::Status ValidateTls(const Config& config) {
  if (config.tls_cert.empty() != config.tls_key.empty()) {
    return Bad(config.tls_cert.empty() ? "tls_key" : "tls_cert",
               config.tls_cert.empty() ? config.tls_key : config.tls_cert,
               "TLS needs both --tls_cert and --tls_key");
  }
  if (!config.tls_client_ca.empty() && config.tls_cert.empty()) {
    return Bad("tls_client_ca", config.tls_client_ca, "needs --tls_cert and --tls_key");
  }
  return absl::OkStatus();
}

}  // namespace

FlagTable MakeFlagTable(Config* config) {
  std::vector<Flag> all;
  for (auto* group : {&CommandFlags, &ModelFlags, &AddressFlags, &CacheFlags, &LimitFlags,
                      &StopFlags, &SecurityFlags}) {
    for (Flag& flag : group(*config)) {
      all.push_back(std::move(flag));
    }
  }
  return FlagTable(std::move(all));
}

absl::Status ValidateConfig(const Config& config, const std::vector<DeviceKind>& devices) {
  if (absl::Status status = ValidateDevice(config, devices); !status.ok()) {
    return status;
  }
  if (absl::Status status = ValidateSupported(config); !status.ok()) {
    return status;
  }
  if (absl::Status status = ValidateTls(config); !status.ok()) {
    return status;
  }
  if (config.idle_ttl_ns > config.max_idle_ttl_ns) {
    return absl::InvalidArgumentError("--idle_ttl is longer than --max_idle_ttl");
  }
  if (config.listen.empty()) {
    return absl::InvalidArgumentError("--listen: expected at least one address");
  }
  for (const std::string& address : config.listen) {
    if (absl::Status status = CheckListenAddress("listen", address); !status.ok()) {
      return status;
    }
  }
  if (!config.http.empty()) {
    return ParseHostPort("http", config.http).status();
  }
  return absl::OkStatus();
}

EngineOptions MakeEngineOptions(const Config& config) {
  EngineOptions options;
  options.cache_dtype = DTypeFromName(config.cache_dtype).value_or(DType::kF32);
  options.weight_dtype = DTypeFromName(config.weight_dtype);
  options.kv_cache_bytes = config.kv_cache_bytes;
  options.mla_shadow_bytes = config.mla_shadow_bytes;
  options.max_rewind = config.max_rewind;
  options.idle_ttl_ns = config.idle_ttl_ns;
  options.max_idle_ttl_ns = config.max_idle_ttl_ns;
  options.max_sessions = config.max_sessions;
  options.evict_idle = config.evict == "idle_lru";
  options.max_batch_rows = config.max_batch_rows;
  options.prefill_chunk_rows = std::min(config.prefill_chunk_rows, config.max_batch_rows);
  if (config.prefill_chunk_gflop > 0) {
    options.prefill_chunk_gflop = config.prefill_chunk_gflop;
  }
  options.max_queue = config.max_queue;
  return options;
}

}  // namespace attnd::server
