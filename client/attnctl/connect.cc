#include "client/attnctl/connect.h"

#include <google/protobuf/util/json_util.h>

#include <cstdio>

namespace attnd::attnctl {

std::vector<Flag> ServerFlags(const std::vector<Flag>& more) {
  std::vector<Flag> flags = {
      {"target", Flag::Kind::kText, "127.0.0.1:8470", "the server, host:port or unix:PATH"},
      {"connect_ms", Flag::Kind::kInt, "3000", "how long to wait for a connection", 1, 3'600'000},
      {"timeout_s", Flag::Kind::kInt, "60", "deadline of each call", 1, 86'400},
      {"json", Flag::Kind::kSwitch, "", "print JSON, for scripts"},
  };
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

absl::StatusOr<std::unique_ptr<client::Client>> ConnectFrom(const Args& args) {
  client::ClientOptions options;
  options.connect_timeout = std::chrono::milliseconds(args.Int("connect_ms"));
  options.deadline = std::chrono::seconds(args.Int("timeout_s"));
  return client::Client::Connect(args.Text("target"), options);
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
