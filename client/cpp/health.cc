// Client::CheckHealth over grpc.health.v1, encoded by hand: Debian's gRPC does not install the
// generated messages. Both are one field: request {string service = 1}, response {enum status = 1}.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <future>

#include "client/cpp/client.h"
#include "client/cpp/connection.h"
#include "client/cpp/unary.h"
#include "google/protobuf/unknown_field_set.h"

namespace attnd::client {
namespace {

constexpr char kMethod[] = "/grpc.health.v1.Health/Check";
constexpr uint64_t kServing = 1;

grpc::ByteBuffer EncodeRequest(const std::string& service) {
  google::protobuf::UnknownFieldSet fields;
  fields.AddLengthDelimited(1, service);
  std::string bytes;
  fields.SerializeToString(&bytes);
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// The enum's value; 0 (unknown) when the field is absent.
absl::StatusOr<uint64_t> DecodeResponse(const grpc::ByteBuffer& response) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (response.Valid() && response.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
  }
  google::protobuf::UnknownFieldSet fields;
  if (!fields.ParseFromString(bytes)) {
    return absl::InternalError("Health.Check: the server's answer cannot be parsed");
  }
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).number() == 1 &&
        fields.field(i).type() == google::protobuf::UnknownField::TYPE_VARINT) {
      return fields.field(i).varint();
    }
  }
  return 0;
}

}  // namespace

absl::StatusOr<Health> Client::CheckHealth(const std::string& service) {
  grpc::GenericStub stub(connection_->channel);
  const grpc::ByteBuffer request = EncodeRequest(service);
  grpc::ByteBuffer response;
  const CallOutcome call = CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool) {
    response.Clear();
    std::promise<grpc::Status> done;
    stub.UnaryCall(context, kMethod, grpc::StubOptions(), &request, &response,
                   [&done](grpc::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  });
  if (call.status.code() == absl::StatusCode::kNotFound) {
    return Health::kUnknownService;
  }
  if (!call.status.ok()) {
    return call.status;
  }
  const absl::StatusOr<uint64_t> status = DecodeResponse(response);
  if (!status.ok()) {
    return status.status();
  }
  return *status == kServing ? Health::kServing : Health::kNotServing;
}

}  // namespace attnd::client
