// /status.json: what the status page shows beside the figures of /metrics: the server, its model,
// its flags, and the sessions used most recently. HTTP asks for no token, so it names no session
// where the server has tokens, and no secret.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "core/clock.h"
#include "server/flags.h"
#include "server/service_context.h"

namespace attnd::server {

// Sessions listed: what a person looks through; fewer where a model has so many layers that the
// document would exceed some 250 KB.
int64_t ListedSessions(int64_t num_layers);

class StatusDocument {
 public:
  // `service` outlives the document.
  StatusDocument(const ServiceContext& service, std::string version,
                 std::vector<ShownSetting> settings);

  // Any thread. However many ask, the sessions are looked through at most twice a second, and with
  // at most a twentieth of a CPU.
  std::string Json();

 private:
  std::string Sessions();

  const ServiceContext& service_;
  const std::string version_;
  const std::vector<ShownSetting> settings_;
  const MonotonicNs began_;

  std::mutex mutex_;
  std::string sessions_;  // JSON
  MonotonicNs next_look_ = 0;
};

}  // namespace attnd::server
