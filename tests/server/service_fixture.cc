// The services over an engine that the test drives by hand.
#include "tests/server/service_fixture.h"

#include <chrono>
#include <thread>

#include "grpcpp/create_channel.h"
#include "kernels/convert.h"
#include "server/status_map.h"

namespace attnd::server {

ServiceFixture::ServiceFixture()
    : engine_(TinyConfig(8, 2), "random:1"),
      service_{.config = config_,
               .clock = engine_.clock(),
               .auth = auth_,
               .log = log_,
               .requests = requests_,
               .metrics = metrics_,
               .admission = admission_,
               .streams = streams_,
               .budget = budget_,
               .server_id = "replica-7",
               .on_drain = [this] { admission_.BeginDraining(); },
               .engine = &engine_.engine(),
               .model = {}} {
  config_.listen = {"127.0.0.1:0"};
  config_.reflection = false;
  admission_.BeginServing();
}

ServiceFixture::~ServiceFixture() {
  channel_.reset();
  if (grpc_ != nullptr) {
    engine_.engine().Stop();
    RunEngine();
    grpc_->Shutdown(0);
  }
}

void ServiceFixture::StartGrpc() {
  auto grpc = GrpcServer::Start(service_, grpc::InsecureServerCredentials());
  ASSERT_TRUE(grpc.ok()) << grpc.status();
  grpc_ = *std::move(grpc);
  channel_ = grpc::CreateChannel(grpc_->addresses(), grpc::InsecureChannelCredentials());
  ASSERT_TRUE(
      channel_->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10)));
}

void ServiceFixture::RunEngineUntil(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!done()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "nothing happened";
    RunEngine();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

v1::Tensor ServiceFixture::Hidden(uint64_t seed, int64_t rows) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DTYPE_F32);
  tensor.add_shape(rows);
  tensor.add_shape(d_model());
  const std::vector<float> values = RandomRows(seed, rows, d_model());
  tensor.mutable_data()->resize(values.size() * 4);
  kernels::FromFloat(DType::kF32, values.data(), rows * d_model(), tensor.mutable_data()->data());
  return tensor;
}

v1::PrefillRequest ServiceFixture::Prefill(const std::string& id, int64_t position, int64_t rows) {
  v1::PrefillRequest request;
  request.set_session_id(id);
  request.set_position(position);
  *request.mutable_hidden() = Hidden(static_cast<uint64_t>(position) + 1, rows);
  return request;
}

Caller ServiceFixture::NewCaller() {
  Caller caller;
  caller.connection = 1;
  caller.cancelled = std::make_shared<std::atomic<bool>>(false);
  return caller;
}

std::string Text(const absl::Status& status) {
  return status.ok() ? "OK"
                     : std::string(CodeName(ReasonCode(WireReason(status)))) + " " +
                           ReasonName(WireReason(status));
}

}  // namespace attnd::server
