// Fork, Export and Import of the fake server. A session's data is its lengths, many times over.
#include <chrono>
#include <thread>

#include "tests/client/fake_server.h"
#include "tests/client/session_parts.h"

namespace attnd::client {
namespace {

std::string DataOf(const std::vector<int64_t>& lengths, int64_t bytes) {
  std::string text;
  for (const int64_t length : lengths) {
    text += std::to_string(length) + " ";
  }
  std::string data;
  while (static_cast<int64_t>(data.size()) < bytes) {
    data += text;
  }
  data.resize(static_cast<size_t>(bytes));
  return data;
}

}  // namespace

void FakeServer::LoseSessions() {
  std::lock_guard<std::mutex> lock(mutex_);
  sessions_.clear();
}

void FakeServer::SwitchReplica() {
  std::lock_guard<std::mutex> lock(mutex_);
  sessions_.swap(elsewhere_);
}

void FakeServer::SetExport(const FakeExport& how) {
  std::lock_guard<std::mutex> lock(mutex_);
  export_ = how;
}

bool FakeServer::Moving(const std::string& session) {
  std::lock_guard<std::mutex> lock(mutex_);
  return moving_.count(session) > 0;
}

void FakeServer::SetMoving(const std::string& session, bool moving) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (moving) {
    moving_.insert(session);
  } else {
    moving_.erase(session);
  }
}

std::vector<v1::SessionChunk> FakeServer::ChunksOf(const std::string& id) {
  v1::SessionHeader header;
  header.set_format_version(1);
  header.set_model_fingerprint("fake");
  header.set_session_id(id);
  header.set_affinity_key(export_.affinity_key);
  header.set_data_bytes(export_.data_bytes);
  for (const int64_t length : sessions_.at(id)) {
    header.add_layer_lengths(length);
  }
  return PartsOf(header, DataOf(sessions_.at(id), export_.data_bytes), export_.chunk_bytes);
}

grpc::Status FakeServer::ForkSession(grpc::ServerContext* context,
                                     const v1::ForkSessionRequest* request, v1::Session* response) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Failure failure = TakeFailure(context);
  const auto parent = sessions_.find(request->session_id());
  if (parent == sessions_.end()) {
    return Fail(context, {grpc::StatusCode::NOT_FOUND, "SESSION_UNKNOWN"});
  }
  if (sessions_.count(request->new_session_id()) > 0) {
    return Fail(context, {grpc::StatusCode::ALREADY_EXISTS, "SESSION_EXISTS"});
  }
  if (failure.code == grpc::StatusCode::OK || failure.after) {
    std::vector<int64_t> lengths = parent->second;
    for (int64_t& length : lengths) {
      length = request->position() > 0 ? std::min(length, request->position()) : length;
    }
    sessions_[request->new_session_id()] = lengths;
    Fill(request->new_session_id(), response);
  }
  return failure.code == grpc::StatusCode::OK ? grpc::Status::OK : Fail(context, failure);
}

grpc::Status FakeServer::ExportSession(grpc::ServerContext* context,
                                       const v1::ExportSessionRequest* request,
                                       grpc::ServerWriter<v1::ExportSessionResponse>* writer) {
  std::vector<v1::SessionChunk> chunks;
  FakeExport how;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const Failure failure = TakeFailure(context);
    if (failure.code != grpc::StatusCode::OK) {
      return Fail(context, failure);
    }
    if (sessions_.count(request->session_id()) == 0) {
      return Fail(context, {grpc::StatusCode::NOT_FOUND, "SESSION_UNKNOWN"});
    }
    ++exports_;
    if (request->move()) {
      moving_.insert(request->session_id());
    }
    how = export_;
    chunks = ChunksOf(request->session_id());
  }
  if (how.damage) {
    chunks[1].mutable_data()->at(0) ^= 1;
  }
  size_t sent = 0;
  for (const v1::SessionChunk& chunk : chunks) {
    v1::ExportSessionResponse response;
    *response.mutable_chunk() = chunk;
    if (sent == how.cut_after || !writer->Write(response)) {
      break;
    }
    ++sent;
  }
  while (how.silent && !context->IsCancelled()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (context->IsCancelled()) {
    SetMoving(request->session_id(), false);
    return grpc::Status::CANCELLED;
  }
  return how.end;
}

grpc::Status FakeServer::ImportSession(grpc::ServerContext* context,
                                       grpc::ServerReader<v1::ImportSessionRequest>* reader,
                                       v1::Session* response) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const Failure failure = TakeFailure(context);
    if (failure.code != grpc::StatusCode::OK) {
      return Fail(context, failure);
    }
  }
  v1::ImportSessionRequest request;
  std::string id, data, digest;
  v1::SessionHeader header;
  while (reader->Read(&request)) {
    if (request.chunk().has_header()) {
      header = request.chunk().header();
      id = request.session_id().empty() ? header.session_id() : request.session_id();
    }
    data += request.chunk().data();
    digest = request.chunk().digest();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (digest.empty()) {
    ++cut_imports_;
    return Fail(context, {grpc::StatusCode::DATA_LOSS, "TRUNCATED"});
  }
  if (digest != DigestOf(header, data)) {
    return Fail(context, {grpc::StatusCode::DATA_LOSS, "BAD_DIGEST"});
  }
  if (sessions_.count(id) > 0) {
    return Fail(context, {grpc::StatusCode::ALREADY_EXISTS, "SESSION_EXISTS"});
  }
  sessions_[id].assign(header.layer_lengths().begin(), header.layer_lengths().end());
  Fill(id, response);
  if (export_.import_answer_lost) {
    return {grpc::StatusCode::UNAVAILABLE, "the answer was lost"};
  }
  return grpc::Status::OK;
}

}  // namespace attnd::client
