// Messages as gRPC hands them over: slices, cut anywhere.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "attnd/v1/attnd.pb.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "server/fast_parse.h"

namespace attnd::server {

// Slices of `piece` bytes, the last one shorter; 0: one slice.
grpc::ByteBuffer Buffer(const std::string& bytes, size_t piece = 0);
// Slices of random lengths, empty ones among them.
grpc::ByteBuffer CutBuffer(const std::string& bytes, std::mt19937_64* random);

std::string Bytes(const grpc::ByteBuffer& buffer);
std::string Bytes(const TensorBytes& tensor);

// `tensor`'s data, as if it had come in pieces of `piece` bytes; 0: one piece.
void SetBytes(const v1::Tensor& tensor, TensorBytes* bytes, size_t piece = 0);

// The message with its tensor back in place.
template <typename Request>
Request Whole(Request request, const TensorBytes& hidden) {
  if (hidden.size > 0) {
    request.mutable_hidden()->set_data(Bytes(hidden));
  }
  return request;
}

// The message in `buffer`; fails the test when there is none.
template <typename Message>
Message Parsed(const grpc::ByteBuffer& buffer) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(Bytes(buffer)));
  return message;
}

}  // namespace attnd::server
