// A client from the flags of a command, and what all commands print alike.
#include "client/attnctl/connect.h"

#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "client/attnctl/command.h"

namespace attnd::attnctl {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;

// What the file that --`flag` names holds; nothing when the flag was not given.
absl::Status ReadFile(const Args& args, const std::string& flag, std::string* text) {
  if (!args.Has(flag)) {
    return absl::OkStatus();
  }
  const std::string place = "--" + flag + "=" + args.Text(flag);
  std::ifstream file(args.Text(flag), std::ios::binary);
  text->resize(kMaxFileBytes);
  file.read(text->data(), kMaxFileBytes);
  text->resize(static_cast<size_t>(file.gcount()));
  if (file.bad() || text->empty() || text->size() == kMaxFileBytes) {
    return UsageError(place + ": expected a readable file of 1 B to 1 MiB");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Flag> ServerFlags(const std::vector<Flag>& more) {
  std::vector<Flag> flags = {
      {"target", Flag::Kind::kText, "127.0.0.1:8470", "the server, host:port or unix:PATH"},
      {"connect_ms", Flag::Kind::kInt, "3000", "how long to wait for a connection", 1, 3'600'000},
      {"timeout_s", Flag::Kind::kInt, "60", "deadline of each call; of a transfer, for each part",
       1, 86'400},
      {"json", Flag::Kind::kSwitch, "", "print JSON, for scripts"},
      {"tls", Flag::Kind::kSwitch, "", "connect with TLS; trust the system's authorities"},
      {"tls_ca", Flag::Kind::kText, "", "connect with TLS; trust the authorities in this PEM file"},
      {"tls_cert", Flag::Kind::kText, "", "PEM file with this client's certificate chain"},
      {"tls_key", Flag::Kind::kText, "", "PEM file with the key of --tls_cert"},
      {"auth_token_file", Flag::Kind::kText, "", "file that holds the bearer token to send"},
  };
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

absl::StatusOr<std::unique_ptr<client::Client>> ConnectFrom(const Args& args) {
  return ConnectTo(args, args.Text("target"));
}

absl::StatusOr<std::unique_ptr<client::Client>> ConnectTo(const Args& args,
                                                          const std::string& target,
                                                          const std::string& key) {
  client::ClientOptions options;
  options.connect_timeout = std::chrono::milliseconds(args.Int("connect_ms"));
  options.deadline = std::chrono::seconds(args.Int("timeout_s"));
  options.tls.enabled = args.Switch("tls") || args.Has("tls_ca") || args.Has("tls_cert");
  for (const auto& [flag, text] : {std::pair("tls_ca", &options.tls.authorities),
                                   std::pair("tls_cert", &options.tls.certificate),
                                   std::pair("tls_key", &options.tls.private_key),
                                   std::pair("auth_token_file", &options.auth_token)}) {
    if (absl::Status status = ReadFile(args, flag, text); !status.ok()) {
      return status;
    }
  }
  absl::StripAsciiWhitespace(&options.auth_token);
  if (args.Has("session_key")) {
    options.session_key = args.Text("session_key");
  }
  if (!key.empty()) {
    options.session_key = key;
  }
  return client::Client::Connect(target, options);
}

void PrintJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  std::fputs(status.ok() ? json.c_str() : "{}", stdout);
}

const char* WireDtypeName(v1::Dtype dtype) {
  switch (dtype) {
    case v1::DTYPE_F32:
      return "f32";
    case v1::DTYPE_BF16:
      return "bf16";
    case v1::DTYPE_F16:
      return "f16";
    case v1::DTYPE_INT8:
      return "int8";
    case v1::DTYPE_F8_E4M3:
      return "fp8_e4m3";
    default:
      return "?";
  }
}

}  // namespace attnd::attnctl
