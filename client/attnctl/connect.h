// What the commands that call a server share.
#pragma once

#include <google/protobuf/message.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/attnctl/args.h"
#include "client/cpp/client.h"

namespace attnd::attnctl {

// --target, --connect_ms, --timeout_s, --json and the flags of TLS and tokens, then `more`.
std::vector<Flag> ServerFlags(const std::vector<Flag>& more = {});

// To --target.
absl::StatusOr<std::unique_ptr<client::Client>> ConnectFrom(const Args& args);
// To another server, with the same flags; `key`: the affinity key, if not that of the flags.
absl::StatusOr<std::unique_ptr<client::Client>> ConnectTo(const Args& args,
                                                          const std::string& target,
                                                          const std::string& key = "");

// The message as JSON with the contract's field names, and a newline, to stdout. 64-bit integers
// are strings, as JSON of protocol buffers has them.
void PrintJson(const google::protobuf::Message& message);

const char* WireDtypeName(v1::Dtype dtype);

}  // namespace attnd::attnctl
