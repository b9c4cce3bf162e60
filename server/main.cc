// attnd: flags to configuration, configuration to a server, signals to its end.
//
// Exit status: 0 after a stop that was asked for, 2 for a configuration, file or address that
// cannot be used (one line on stderr), 128 + n when a second signal n cut the stop short.
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
#include "server/log.h"
#include "server/model_loader.h"
#include "server/server.h"
#include "server/stop_signals.h"

namespace {

using attnd::server::Auth;
using attnd::server::Config;
using attnd::server::FlagTable;
using attnd::server::Log;
using attnd::server::OpenedModel;
using attnd::server::Server;
using attnd::server::StopSignals;

constexpr char kVersion[] = ATTND_VERSION;
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
  std::fprintf(stderr, "attnd: %s\n", attnd::Printable(message).c_str());
  return kBadConfiguration;
}

// --help and the like; true when there is nothing else to do.
bool Answered(const Config& config, const FlagTable& flags) {
  if (config.help) {
    std::printf("attnd %s: attention as a service.\n\nUsage: attnd [--name=value ...]\n%s",
                kVersion, flags.Help().c_str());
  } else if (config.version) {
    std::printf("attnd %s\n", kVersion);
  } else if (config.dump_flags) {
    std::printf("%s\n", flags.Json().c_str());
  }
  return config.help || config.version || config.dump_flags;
}

int Serve(Config config, OpenedModel model, const FlagTable& flags, StopSignals& signals) {
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
  fields.insert(fields.begin(), {"version", kVersion});
  Server server(std::move(config), std::move(model), std::move(auth), kVersion, log);
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

int Run(const std::vector<std::string>& args) {
  Config config;
  FlagTable flags = attnd::server::MakeFlagTable(&config);
  if (absl::Status status = flags.Parse(args); !status.ok()) {
    return Fail(status);
  }
  if (Answered(config, flags)) {
    return 0;
  }
  if (absl::Status status = attnd::server::ValidateConfig(config); !status.ok()) {
    return Fail(status);
  }
  StopSignals signals;
  absl::StatusOr<OpenedModel> model = attnd::server::OpenModel(config);
  if (!model.ok()) {
    return Fail(model.status());
  }
  attnd::server::ResolveAutomatic(*model, &config);
  if (absl::Status status = attnd::server::CheckModel(config, *model); !status.ok()) {
    return Fail(status);
  }
  if (config.check) {
    if (absl::Status status =
            attnd::CheckWeights(model->plan, model->weights.get(),
                                attnd::server::MakeEngineOptions(config).weight_dtype);
        !status.ok()) {
      return Fail(status);
    }
    for (const auto& [name, value] : attnd::server::PlannedBytes(config, *model)) {
      std::printf("%-30s %s\n", name.c_str(), value.c_str());
    }
    return 0;
  }
  return Serve(config, *std::move(model), flags, signals);
}

}  // namespace

int main(int argc, char** argv) {
  KeepFreedMemory();
  try {
    return Run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& e) {
    return Fail(absl::InternalError(std::string("unexpected: ") + e.what()));
  }
}
