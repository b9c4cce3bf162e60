// Forks, exports and imports over the wire.
#include "tests/integration/copies.h"

#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr char kWideModel[] = R"(model:
  d_model: 16
  n_layers: 2
  n_heads_q: 2
  n_heads_kv: 1
  d_head: 64
  d_kv_compressed: 512
  d_q_compressed: 64
  d_head_rope: 64
  max_seq_len: 4096
attention:
  global_layer_freq: 2
  local_window: 100
)";

}  // namespace

std::vector<std::string> WideModelFlags(const TempDir& dir, const std::vector<std::string>& more) {
  std::vector<std::string> flags = {"--model=" + dir.Write("wide.yaml", kWideModel),
                                    "--weights=random:7"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

v1::Tensor WideRows(uint64_t seed, int64_t rows) {
  return MakeTensor(RandomRows(seed, rows, kWideWidth), kWideWidth);
}

Outcome Fork(Wire& wire, const std::string& session, int64_t position, std::string* fork) {
  grpc::ClientContext context;
  Prepare(&context);
  v1::ForkSessionRequest request;
  request.set_session_id(session);
  request.set_position(position);
  v1::Session response;
  const grpc::Status status = wire.sessions().ForkSession(&context, request, &response);
  *fork = response.session_id();
  return OutcomeOf(status, context);
}

ExportCall::ExportCall(Wire& wire, const std::string& session, bool move) {
  Prepare(&context_);
  v1::ExportSessionRequest request;
  request.set_session_id(session);
  request.set_move(move);
  stream_ = wire.sessions().ExportSession(&context_, request);
}

ExportCall::~ExportCall() {
  if (!finished_) {
    context_.TryCancel();
    Finish();
  }
}

bool ExportCall::Read() {
  v1::ExportSessionResponse response;
  if (!stream_->Read(&response)) {
    return false;
  }
  chunks_.push_back(response.chunk());
  return true;
}

Outcome ExportCall::Finish() {
  while (Read()) {
  }
  finished_ = true;
  return OutcomeOf(stream_->Finish(), context_);
}

std::string ExportCall::Data() const {
  std::string data;
  for (const v1::SessionChunk& chunk : chunks_) {
    data += chunk.data();
  }
  return data;
}

ImportCall::ImportCall(Wire& wire, const std::string& id) : id_(id) {
  Prepare(&context_);
  stream_ = wire.sessions().ImportSession(&context_, &session_);
}

ImportCall::~ImportCall() {
  if (!finished_) {
    context_.TryCancel();
    Finish();
  }
}

bool ImportCall::Write(const v1::SessionChunk& chunk) {
  v1::ImportSessionRequest request;
  if (first_) {
    request.set_session_id(id_);
    first_ = false;
  }
  *request.mutable_chunk() = chunk;
  return stream_->Write(request);
}

Outcome ImportCall::Finish() {
  stream_->WritesDone();
  finished_ = true;
  return OutcomeOf(stream_->Finish(), context_);
}

Outcome Import(Wire& wire, const std::string& id, const std::vector<v1::SessionChunk>& chunks) {
  ImportCall call(wire, id);
  for (const v1::SessionChunk& chunk : chunks) {
    if (!call.Write(chunk)) {
      break;  // Finish() says why
    }
  }
  return call.Finish();
}

}  // namespace attnd
