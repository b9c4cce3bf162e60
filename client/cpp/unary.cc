#include "client/cpp/unary.h"

#include <google/protobuf/any.pb.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/unknown_field_set.h>

#include <cstdio>
#include <random>
#include <thread>

#include "client/cpp/error.h"

namespace attnd::client {
namespace {

std::chrono::milliseconds ToMs(const google::protobuf::Duration& duration) {
  return std::chrono::milliseconds(duration.seconds() * 1000 + duration.nanos() / 1'000'000);
}

// The length-delimited field `number` of a serialized message, each time it occurs. Read this
// way because Debian's gRPC does not install the messages of google.rpc.
std::vector<std::string> Field(const std::string& message, int number) {
  std::vector<std::string> values;
  google::protobuf::UnknownFieldSet fields;
  if (!fields.ParseFromString(message)) {
    return values;
  }
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = fields.field(i);
    if (field.number() == number &&
        field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
      values.push_back(field.length_delimited());
    }
  }
  return values;
}

// `details` is a google.rpc.Status: field 3 holds Any's, one of them a google.rpc.RetryInfo,
// whose field 1 is a Duration.
std::optional<std::chrono::milliseconds> RetryInfo(const std::string& details) {
  for (const std::string& detail : Field(details, 3)) {
    google::protobuf::Any any;
    if (!any.ParseFromString(detail) ||
        any.type_url() != "type.googleapis.com/google.rpc.RetryInfo") {
      continue;
    }
    for (const std::string& delay : Field(any.value(), 1)) {
      google::protobuf::Duration duration;
      if (duration.ParseFromString(delay)) {
        return ToMs(duration);
      }
    }
  }
  return std::nullopt;
}

// Codes outside gRPC's are a broken server's.
absl::StatusCode Code(int code) {
  return code >= 0 && code <= 16 ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

}  // namespace

std::string ServerOf(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerInitialMetadata();
  const auto id = metadata.find("attnd-server");
  return id == metadata.end() ? "" : std::string(id->second.data(), id->second.size());
}

FailedTry FailedSince(const Connection& connection, const Error& error,
                      std::chrono::steady_clock::time_point start) {
  return {error,
          std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                start),
          connection.replica->ChangedWithin(connection.options.retry.arrival_wait,
                                            connection.options.retry.broken_arrival_wait)};
}

void Prepare(const Connection& connection, grpc::ClientContext* context) {
  PrepareWithKey(connection, connection.options.session_key, context);
}

void PrepareWithKey(const Connection& connection, const std::string& key,
                    grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() + connection.options.deadline);
  context->AddMetadata("attnd-session-key", key);
  if (!connection.options.auth_token.empty()) {
    context->AddMetadata("authorization", "Bearer " + connection.options.auth_token);
  }
  // Also cures gRPC 1.51's spurious failure of a first connect.
  context->set_wait_for_ready(true);
}

absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.ok()) {
    return absl::OkStatus();
  }
  Error error;
  error.code = Code(status.error_code());
  error.message = status.error_message();
  const auto& trailer = context.GetServerTrailingMetadata();
  const auto reason = trailer.find("attnd-reason");
  if (reason != trailer.end()) {
    error.reason = std::string(reason->second.data(), reason->second.size());
  }
  error.retry_after = RetryInfo(status.error_details());
  return ToStatus(error);
}

absl::Status FromWire(const v1::Status& status) {
  if (status.code() == 0) {
    return absl::OkStatus();
  }
  Error error{Code(status.code()), status.reason(), status.message(), std::nullopt};
  if (status.has_retry_after()) {
    error.retry_after = ToMs(status.retry_after());
  }
  return ToStatus(error);
}

CallOutcome CallWithRetry(Connection& connection, const Try& call) {
  Backoff backoff(connection.options.retry);
  const auto start = std::chrono::steady_clock::now();
  bool uncertain = false;
  while (true) {
    grpc::ClientContext context;
    Prepare(connection, &context);
    const grpc::Status result = call(&context, uncertain);
    const std::string server = ServerOf(context);
    if (!server.empty()) {
      connection.replica->Note(server);
    }
    const absl::Status status = FromGrpc(result, context);
    if (status.ok()) {
      return {status, false, server};
    }
    const Error error = ErrorOf(status);
    if (IsBroken(error)) {
      connection.replica->NoteBroken();
    }
    uncertain = uncertain || !error.no_effect();
    const auto pause = backoff.PauseAfter(FailedSince(connection, error, start), Random64());
    if (!pause.has_value()) {
      return {status, uncertain, server};
    }
    std::this_thread::sleep_for(*pause);
  }
}

uint64_t Random64() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

std::string RandomId() {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(Random64()),
                static_cast<unsigned long long>(Random64()));
  return text;
}

}  // namespace attnd::client
