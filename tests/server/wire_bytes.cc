// Messages as gRPC hands them over.
#include "tests/server/wire_bytes.h"

#include <algorithm>

namespace attnd::server {
namespace {

grpc::ByteBuffer Join(const std::vector<std::string>& pieces) {
  std::vector<grpc::Slice> slices;
  for (const std::string& piece : pieces) {
    slices.emplace_back(piece);
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::vector<std::string> Cut(const std::string& bytes, size_t piece) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    pieces.push_back(bytes.substr(at, piece));
  }
  return pieces;
}

}  // namespace

grpc::ByteBuffer Buffer(const std::string& bytes, size_t piece) {
  return Join(piece == 0 ? std::vector<std::string>{bytes} : Cut(bytes, piece));
}

grpc::ByteBuffer CutBuffer(const std::string& bytes, std::mt19937_64* random) {
  const size_t most = size_t{1} << (*random)() % 8;
  std::vector<std::string> pieces;
  for (size_t at = 0; at < bytes.size(); at += pieces.back().size()) {
    pieces.push_back(bytes.substr(at, (*random)() % (most + 1)));
  }
  return Join(pieces);
}

std::string Bytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

std::string Bytes(const TensorBytes& tensor) {
  std::string bytes;
  for (std::string_view piece : tensor.pieces) {
    bytes.append(piece);
  }
  return bytes;
}

void SetBytes(const v1::Tensor& tensor, TensorBytes* bytes, size_t piece) {
  bytes->parsed = tensor.data();
  bytes->size = static_cast<int64_t>(tensor.data().size());
  const size_t length = piece == 0 ? tensor.data().size() : piece;
  for (size_t at = 0; at < tensor.data().size(); at += length) {
    bytes->pieces.push_back(std::string_view(bytes->parsed).substr(at, length));
  }
}

}  // namespace attnd::server
