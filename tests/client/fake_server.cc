#include "tests/client/fake_server.h"

#include <google/protobuf/any.pb.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <set>

#include "client/cpp/tensor.h"
#include "kernels/check.h"

namespace attnd::client {
namespace {

// A google.rpc.Status with a google.rpc.RetryInfo.
std::string RetryDetails(int64_t ms) {
  google::protobuf::Duration delay;
  delay.set_seconds(ms / 1000);
  delay.set_nanos(static_cast<int32_t>(ms % 1000 * 1'000'000));
  google::protobuf::UnknownFieldSet info;
  info.AddLengthDelimited(1, delay.SerializeAsString());
  google::protobuf::Any any;
  any.set_type_url("type.googleapis.com/google.rpc.RetryInfo");
  info.SerializeToString(any.mutable_value());
  google::protobuf::UnknownFieldSet status;
  status.AddVarint(1, 8);
  status.AddLengthDelimited(3, any.SerializeAsString());
  std::string bytes;
  status.SerializeToString(&bytes);
  return bytes;
}

// Rows [begin, begin + count) of the input, times two.
void Double(const v1::Tensor& input, int64_t begin, int64_t count, v1::Tensor* output) {
  std::vector<float> rows;
  const absl::Status status = DecodeRows(input, FakeServer::kWidth, &rows);
  Check(status.ok(), "the client sends well-formed rows");
  std::vector<float> doubled;
  for (int64_t i = begin * FakeServer::kWidth; i < (begin + count) * FakeServer::kWidth; ++i) {
    doubled.push_back(2 * rows[static_cast<size_t>(i)]);
  }
  EncodeRows(doubled, FakeServer::kWidth, DType::kF32, output);
}

int64_t Rows(const v1::Tensor& tensor) { return tensor.shape(0); }

grpc::StatusCode CodeOf(const std::string& reason) {
  return reason == "SESSION_UNKNOWN"  ? grpc::StatusCode::NOT_FOUND
         : reason == "SESSION_MOVING" ? grpc::StatusCode::UNAVAILABLE
                                      : grpc::StatusCode::FAILED_PRECONDITION;
}

}  // namespace

FakeServer::FakeServer(int64_t max_message_bytes) : max_message_bytes_(max_message_bytes) {
  grpc::EnableDefaultHealthCheckService(true);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(static_cast<v1::AttentionService::Service*>(this));
  builder.RegisterService(static_cast<v1::SessionService::Service*>(this));
  builder.RegisterService(static_cast<v1::ModelService::Service*>(this));
  builder.RegisterService(static_cast<v1::AdminService::Service*>(this));
  server_ = builder.BuildAndStart();
  Check(server_ != nullptr, "a free port exists");
  target_ = "127.0.0.1:" + std::to_string(port);
  server_id_ = "fake-" + std::to_string(port);
}

FakeServer::~FakeServer() { server_->Shutdown(std::chrono::system_clock::now()); }

std::unique_ptr<Client> FakeServer::Connect(ClientOptions options) const {
  options.retry.initial_backoff = std::chrono::milliseconds(1);
  options.retry.max_backoff = std::chrono::milliseconds(2);
  auto client = Client::Connect(target_, options);
  Check(client.ok(), "the fake server is there");
  return *std::move(client);
}

void FakeServer::SetServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus("", serving);
}

void FakeServer::FailNext(const Failure& failure) {
  std::lock_guard<std::mutex> lock(mutex_);
  failures_.push_back(failure);
}

void FakeServer::StopFailing() {
  std::lock_guard<std::mutex> lock(mutex_);
  failures_.clear();
}

int64_t FakeServer::Length(const std::string& session, int layer) {
  std::lock_guard<std::mutex> lock(mutex_);
  return sessions_[session].at(static_cast<size_t>(layer));
}

std::vector<v1::PrefillRequest> FakeServer::prefills() {
  std::lock_guard<std::mutex> lock(mutex_);
  return prefills_;
}

std::vector<v1::DecodeRequest> FakeServer::decodes() {
  std::lock_guard<std::mutex> lock(mutex_);
  return decodes_;
}

int FakeServer::creates() {
  std::lock_guard<std::mutex> lock(mutex_);
  return creates_;
}

std::vector<std::string> FakeServer::keys() {
  std::lock_guard<std::mutex> lock(mutex_);
  return keys_;
}

int FakeServer::most_in_flight() {
  std::lock_guard<std::mutex> lock(mutex_);
  return most_in_flight_;
}

int FakeServer::exports() {
  std::lock_guard<std::mutex> lock(mutex_);
  return exports_;
}

int FakeServer::cut_imports() {
  std::lock_guard<std::mutex> lock(mutex_);
  return cut_imports_;
}

void FakeServer::set_server_id(const std::string& id) {
  std::lock_guard<std::mutex> lock(mutex_);
  server_id_ = id;
}

std::string FakeServer::server_id() {
  std::lock_guard<std::mutex> lock(mutex_);
  return server_id_;
}

int FakeServer::drains() {
  std::lock_guard<std::mutex> lock(mutex_);
  return drains_;
}

void FakeServer::BreakStreams() {
  std::lock_guard<std::mutex> lock(mutex_);
  break_streams_ = true;
}

void FakeServer::Tell(grpc::ServerContext* context) {
  if (!server_id_.empty()) {
    context->AddInitialMetadata("attnd-server", server_id_);
  }
}

Failure FakeServer::TakeFailure(grpc::ServerContext* context) {
  Tell(context);
  for (const auto& [key, value] : context->client_metadata()) {
    if (key == "attnd-session-key") {
      keys_.emplace_back(value.data(), value.size());
    }
  }
  if (failures_.empty()) {
    return {};
  }
  Failure failure = failures_.front();
  failures_.pop_front();
  return failure;
}

grpc::Status FakeServer::Fail(grpc::ServerContext* context, const Failure& failure) {
  if (!failure.reason.empty()) {
    context->AddTrailingMetadata("attnd-reason", failure.reason);
  }
  if (failure.switches) {
    sessions_.swap(elsewhere_);
  }
  return {failure.code, "asked to fail",
          failure.retry_ms >= 0 ? RetryDetails(failure.retry_ms) : std::string()};
}

std::string FakeServer::Append(const StepFields& step) {
  const auto it = sessions_.find(step.session);
  if (it == sessions_.end()) {
    return "SESSION_UNKNOWN";
  }
  if (moving_.count(step.session) > 0) {
    return "SESSION_MOVING";
  }
  int64_t& length = it->second.at(step.layer);
  const bool guard = step.rewind && step.expected_length > 0;
  const bool expected = length == step.expected_length || length == step.position;
  if ((guard && !expected) || step.position > length || (step.position < length && !step.rewind)) {
    return "POSITION_MISMATCH";
  }
  length = step.position + step.rows;
  return "";
}

grpc::Status FakeServer::Prefill(grpc::ServerContext* context, const v1::PrefillRequest* request,
                                 v1::PrefillResponse* response) {
  std::lock_guard<std::mutex> lock(mutex_);
  prefills_.push_back(*request);
  const Failure failure = TakeFailure(context);
  if (failure.code != grpc::StatusCode::OK && !failure.after) {
    return Fail(context, failure);
  }
  const int64_t rows = Rows(request->hidden());
  const std::string reason = Append({request->session_id(), request->layer(), request->position(),
                                     rows, request->rewind(), request->expected_length()});
  if (!reason.empty()) {
    return Fail(context, {CodeOf(reason), reason});
  }
  if (failure.after) {
    return Fail(context, failure);
  }
  const int64_t wanted = request->output_rows() == v1::OUTPUT_ROWS_NONE   ? 0
                         : request->output_rows() == v1::OUTPUT_ROWS_LAST ? 1
                                                                          : rows;
  response->set_output_position(wanted > 0 ? request->position() + rows - wanted
                                           : request->position());
  response->set_length(request->position() + rows);
  response->mutable_timing()->set_compute_ns(1000);
  Double(request->hidden(), rows - wanted, wanted, response->mutable_output());
  return grpc::Status::OK;
}

grpc::Status FakeServer::Decode(grpc::ServerContext* context, const v1::DecodeRequest* request,
                                v1::DecodeResponse* response) {
  std::lock_guard<std::mutex> lock(mutex_);
  decodes_.push_back(*request);
  const Failure failure = TakeFailure(context);
  if (failure.code != grpc::StatusCode::OK && !failure.after) {
    return Fail(context, failure);
  }
  for (const v1::SequenceStep& step : request->sequences()) {
    const std::string reason =
        Append({step.session_id(), request->layer(), step.position(),
                static_cast<int64_t>(step.num_tokens()), step.rewind(), step.expected_length()});
    v1::SequenceResult* result = response->add_results();
    if (!reason.empty()) {
      result->mutable_status()->set_code(CodeOf(reason));
      result->mutable_status()->set_reason(reason);
      result->mutable_status()->set_message("position");
    }
  }
  Double(request->hidden(), 0, Rows(request->hidden()), response->mutable_output());
  return failure.after ? Fail(context, failure) : grpc::Status::OK;
}

grpc::Status FakeServer::GetModel(grpc::ServerContext*, const v1::GetModelRequest*,
                                  v1::ModelInfo* response) {
  response->set_name("fake");
  response->set_d_model(kWidth);
  response->set_max_seq_len(1 << 20);
  response->set_max_message_bytes(max_message_bytes_);
  for (int i = 0; i < kLayers; ++i) {
    response->add_layers(v1::LAYER_KIND_LOCAL_GQA);
  }
  return grpc::Status::OK;
}

grpc::Status FakeServer::GetStats(grpc::ServerContext*, const v1::GetStatsRequest*,
                                  v1::Stats* response) {
  std::lock_guard<std::mutex> lock(mutex_);
  response->set_server_id(server_id_);
  response->set_sessions(static_cast<int64_t>(sessions_.size()));
  return grpc::Status::OK;
}

grpc::Status FakeServer::Drain(grpc::ServerContext*, const v1::DrainRequest*,
                               v1::DrainResponse* response) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++drains_;
  response->set_sessions(static_cast<int64_t>(sessions_.size()));
  return grpc::Status::OK;
}

bool FakeServer::Answer(const v1::StepRequest& request,
                        grpc::ServerReaderWriter<v1::StepResponse, v1::StepRequest>* stream) {
  v1::StepResponse response;
  response.set_step_id(request.step_id());
  if (request.has_decode()) {
    const v1::DecodeRequest& decode = request.decode();
    for (int i = 0; i < decode.sequences_size(); ++i) {
      response.mutable_decode()->add_results();
    }
    Double(decode.hidden(), 0, Rows(decode.hidden()), response.mutable_decode()->mutable_output());
    return stream->Write(response);
  }
  const v1::PrefillRequest& prefill = request.prefill();
  std::string reason;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    reason = Append({prefill.session_id(), prefill.layer(), prefill.position(),
                     Rows(prefill.hidden()), prefill.rewind(), prefill.expected_length()});
  }
  if (!reason.empty()) {
    response.mutable_status()->set_code(CodeOf(reason));
    response.mutable_status()->set_reason(reason);
    return stream->Write(response);
  }
  const int64_t rows = Rows(prefill.hidden());
  for (int64_t begin = 0; begin < rows; begin += stream_rows_) {
    const int64_t count = std::min<int64_t>(stream_rows_, rows - begin);
    response.set_more(begin + count < rows);
    response.mutable_prefill()->set_output_position(prefill.position() + begin);
    Double(prefill.hidden(), begin, count, response.mutable_prefill()->mutable_output());
    if (!stream->Write(response)) {
      return false;
    }
  }
  return true;
}

grpc::Status FakeServer::Steps(
    grpc::ServerContext*, grpc::ServerReaderWriter<v1::StepResponse, v1::StepRequest>* stream) {
  v1::StepRequest request;
  std::set<uint64_t> silent;
  while (stream->Read(&request)) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (break_streams_) {
        return {grpc::StatusCode::UNAVAILABLE, "asked to break"};
      }
    }
    if (request.step_case() == v1::StepRequest::kCancelStepId) {
      v1::StepResponse response;
      response.set_step_id(request.cancel_step_id());
      response.mutable_status()->set_code(grpc::StatusCode::CANCELLED);
      response.mutable_status()->set_reason("STEP_CANCELLED");
      silent.erase(request.cancel_step_id());
      stream->Write(response);
    } else if (request.has_prefill() && request.prefill().layer() == kSilentLayer) {
      silent.insert(request.step_id());
      std::lock_guard<std::mutex> lock(mutex_);
      most_in_flight_ = std::max(most_in_flight_, static_cast<int>(silent.size()));
    } else if (!Answer(request, stream)) {
      break;
    }
  }
  return grpc::Status::OK;
}

}  // namespace attnd::client
