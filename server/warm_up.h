// The first steps of a fresh engine, so that the first user does not pay for cold pages and code.
#pragma once

#include "absl/status/status.h"
#include "core/engine.h"

namespace attnd::server {

// Prefills and decodes a row on the first layer of each kind, in a session of nobody's tenant that
// is closed afterwards. The engine's thread runs. Fails when a row does not fit into the cache.
absl::Status WarmUp(Engine& engine);

}  // namespace attnd::server
