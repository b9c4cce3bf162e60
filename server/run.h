// attnd from its arguments to its end: flags to configuration, configuration to a server, signals
// to its stop.
#pragma once

#include <string>
#include <vector>

#include "server/device.h"

namespace attnd::server {

// The process's exit status: 0 after a stop that was asked for, 2 for a configuration, file, device
// or address that cannot be used (one line on stderr), 128 + n when a second signal n cut the stop
// short.
int RunServer(const std::vector<std::string>& args, const std::string& version,
              const std::vector<DeviceKind>& devices);

}  // namespace attnd::server
