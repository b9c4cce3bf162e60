// The devices of this build: the one place that knows whether it has CUDA.
#pragma once

#include <vector>

#include "server/device.h"

namespace attnd::server {

std::vector<DeviceKind> BuiltInDevices();

}  // namespace attnd::server
