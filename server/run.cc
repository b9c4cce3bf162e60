#include "server/run.h"

#include <malloc.h>

#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/layer_weights.h"
#include "core/text.h"
#include "server/config.h"
#include "server/credentials.h"
#include "server/device.h"
#include "server/listen_address.h"
#include "server/log.h"
#include "server/model_loader.h"
#include "server/server.h"
#include "server/stop_signals.h"

namespace attnd::server {
namespace {

constexpr int kBadConfiguration = 2;

// By default glibc gives freed memory of a few MiB back to the kernel and faults it in anew: 100
// page faults and 0.3 ms of the 2.15 ms that a 1 MiB Prefill costs beyond its computing on a 2-core
// VM. Now buffers of up to 8 MiB are used again; a thread's arena keeps up to 16 MiB for that.
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 8 << 20);
  mallopt(M_TRIM_THRESHOLD, 16 << 20);
}

int Fail(const absl::Status& status) {
  const std::string message(status.message().data(), status.message().size());
  std::fprintf(stderr, "attnd: %s\n", Printable(message).c_str());
  return kBadConfiguration;
}

// --help and the like; true when there is nothing else to do.
bool Answered(const Config& config, const FlagTable& flags, const std::string& version) {
  if (config.help) {
    std::printf("attnd %s: attention as a service.\n\nUsage: attnd [--name=value ...]\n%s",
                version.c_str(), flags.Help().c_str());
  } else if (config.version) {
    std::printf("attnd %s\n", version.c_str());
  } else if (config.dump_flags) {
    std::printf("%s\n", flags.Json().c_str());
  }
  return config.help || config.version || config.dump_flags;
}

int Serve(Config config, OpenedModel model, OpenedDevice device, const FlagTable& flags,
          const std::string& version, StopSignals& signals) {
  Auth auth;
  if (!config.auth_tokens_file.empty()) {
    absl::StatusOr<Auth> read = Auth::FromFile(config.auth_tokens_file);
    if (!read.ok()) {
      return Fail(read.status());
    }
    auth = *std::move(read);
  }
  const Log log(config.log_format == "json");
  Log::Fields fields = flags.Values();
  fields.insert(fields.begin(), {"version", version});
  if (!device.passed_over.empty()) {
    fields.emplace_back("passed_over", device.passed_over);
  }
  Server server(std::move(config), std::move(model), std::move(device.backend), std::move(auth),
                version, flags.Shown(), log);
  if (absl::Status status = server.Start(fields); !status.ok()) {
    return Fail(status);
  }
  signals.ServingBegan();
  std::printf("%s\n", server.ReadyLine().c_str());
  std::fflush(stdout);
  signals.Wait();
  server.Stop();
  return 0;
}

// Tokens, TLS files and addresses: all that serving needs beside the model.
absl::Status CheckServing(const Config& config) {
  if (!config.auth_tokens_file.empty()) {
    if (absl::Status status = Auth::FromFile(config.auth_tokens_file).status(); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = CheckCredentials(config); !status.ok()) {
    return status;
  }
  for (const std::string& address : config.listen) {
    if (absl::Status status = CheckAddressIsOurs("listen", address); !status.ok()) {
      return status;
    }
  }
  return config.http.empty() ? absl::OkStatus() : CheckAddressIsOurs("http", config.http);
}

// --check.
int Plan(const Config& config, const OpenedModel& model) {
  if (absl::Status status = CheckServing(config); !status.ok()) {
    return Fail(status);
  }
  if (absl::Status status =
          CheckWeights(model.plan, model.weights.get(), MakeEngineOptions(config).weight_dtype);
      !status.ok()) {
    return Fail(status);
  }
  for (const auto& [name, value] : PlannedBytes(config, model)) {
    std::printf("%-30s %s\n", name.c_str(), value.c_str());
  }
  return 0;
}

int Run(const std::vector<std::string>& args, const std::string& version,
        const std::vector<DeviceKind>& devices) {
  Config config;
  FlagTable flags = MakeFlagTable(&config);
  if (absl::Status status = flags.Parse(args); !status.ok()) {
    return Fail(status);
  }
  if (Answered(config, flags, version)) {
    return 0;
  }
  if (absl::Status status = ValidateConfig(config, devices); !status.ok()) {
    return Fail(status);
  }
  StopSignals signals;
  absl::StatusOr<OpenedModel> model = OpenModel(config);
  if (!model.ok()) {
    return Fail(model.status());
  }
  absl::StatusOr<OpenedDevice> device = OpenDevice(config, devices);
  if (!device.ok()) {
    return Fail(device.status());
  }
  ResolveAutomatic(*model, *device, &config);
  if (absl::Status status = CheckModel(config, *model, device->memory); !status.ok()) {
    return Fail(status);
  }
  if (config.check) {
    return Plan(config, *model);
  }
  return Serve(config, *std::move(model), *std::move(device), flags, version, signals);
}

}  // namespace

int RunServer(const std::vector<std::string>& args, const std::string& version,
              const std::vector<DeviceKind>& devices) {
  KeepFreedMemory();
  try {
    return Run(args, version, devices);
  } catch (const std::exception& e) {
    return Fail(absl::InternalError(std::string("unexpected: ") + e.what()));
  }
}

}  // namespace attnd::server
