// The methods of the wire contract as metrics and logs name them.
#pragma once

#include <cstdint>

namespace attnd::server {

// A step on a Steps stream counts as one request; kSteps is a step without a kind.
enum class Method : uint8_t {
  kPrefill,
  kDecode,
  kStepsPrefill,
  kStepsDecode,
  kSteps,
  kCreateSession,
  kGetSession,
  kListSessions,
  kForkSession,
  kRewindSession,
  kCloseSession,
  kExportSession,
  kImportSession,
  kGetModel,
  kGetStats,
  kDrain,
};
inline constexpr int kNumMethods = static_cast<int>(Method::kDrain) + 1;

constexpr const char* MethodName(Method method) {
  constexpr const char* kNames[kNumMethods] = {
      "Prefill",       "Decode",        "Steps.Prefill", "Steps.Decode",
      "Steps",         "CreateSession", "GetSession",    "ListSessions",
      "ForkSession",   "RewindSession", "CloseSession",  "ExportSession",
      "ImportSession", "GetModel",      "GetStats",      "Drain"};
  return kNames[static_cast<int>(method)];
}

}  // namespace attnd::server
