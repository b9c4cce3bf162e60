// What a call costs beyond its computing: the same Prefill or Decode to several servers in turn.
//
//   bench_wire prefill|decode CALLS NAME=HOST:PORT...
//
// prefill: 1 MiB of float32 rows, the same step over and over; decode: one row of one session.
// CALLS (rounded up to tens) are made to each server. One without sessions is bench_echo_server;
// the rows are as wide as the first other server's model, so all the models are of one width.
// Prints JSON; times are in microseconds, and `overhead` is a call's time without the compute_ns
// of its answer.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "attnd/v1/attnd.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "nlohmann/json.hpp"

namespace attnd {
namespace {

constexpr int64_t kPrefillBytes = 1 << 20;
// Servers take turns by blocks of calls, and the first calls of a block do not count: the workers
// of the server before may still be spinning.
constexpr int kBlockCalls = 10;
constexpr int kUncounted = 3;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "bench_wire: %s\n", what.c_str());
  std::exit(2);
}

struct Target {
  std::string name;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::AttentionService::Stub> stub;
  std::string session = "echo";
  int64_t d_model = 0;  // 0: an echo
  std::vector<double> seconds;
  std::vector<double> compute;
  std::vector<double> overhead;
};

std::unique_ptr<Target> Connect(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) {
    Fail(argument + " is not NAME=HOST:PORT");
  }
  auto target = std::make_unique<Target>();
  target->name = argument.substr(0, equals);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetString("bench_target", target->name);  // a connection of its own
  target->channel = grpc::CreateCustomChannel(argument.substr(equals + 1),
                                              grpc::InsecureChannelCredentials(), arguments);
  target->stub = v1::AttentionService::NewStub(target->channel);
  grpc::ClientContext look;
  look.set_wait_for_ready(true);
  look.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  v1::ModelInfo model;
  const grpc::Status looked =
      v1::ModelService::NewStub(target->channel)->GetModel(&look, v1::GetModelRequest(), &model);
  if (looked.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return target;
  }
  grpc::ClientContext create;
  v1::Session session;
  const grpc::Status created = v1::SessionService::NewStub(target->channel)
                                   ->CreateSession(&create, v1::CreateSessionRequest(), &session);
  if (!looked.ok() || !created.ok()) {
    Fail(target->name + ": " + looked.error_message() + created.error_message());
  }
  target->d_model = model.d_model();
  target->session = session.session_id();
  return target;
}

v1::Tensor Rows(int64_t rows, int64_t d_model) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DTYPE_F32);
  tensor.add_shape(rows);
  tensor.add_shape(d_model);
  for (int64_t i = 0; i < rows * d_model; ++i) {
    const auto value = static_cast<float>(std::sin(static_cast<double>(i)));
    tensor.mutable_data()->append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return tensor;
}

class Prefill {
 public:
  using Response = v1::PrefillResponse;
  explicit Prefill(int64_t d_model) {
    *request_.mutable_hidden() = Rows(kPrefillBytes / 4 / d_model, d_model);
    request_.set_rewind(true);
  }
  size_t bytes() const { return request_.ByteSizeLong(); }
  grpc::Status Call(Target& target, Response* response) {
    request_.set_session_id(target.session);
    grpc::ClientContext context;
    return target.stub->Prefill(&context, request_, response);
  }

 private:
  v1::PrefillRequest request_;
};

class Decode {
 public:
  using Response = v1::DecodeResponse;
  explicit Decode(int64_t d_model) {
    *request_.mutable_hidden() = Rows(1, d_model);
    request_.add_sequences()->set_rewind(true);
  }
  size_t bytes() const { return request_.ByteSizeLong(); }
  grpc::Status Call(Target& target, Response* response) {
    request_.mutable_sequences(0)->set_session_id(target.session);
    grpc::ClientContext context;
    return target.stub->Decode(&context, request_, response);
  }

 private:
  v1::DecodeRequest request_;
};

double Percentile(std::vector<double> values, double share) {
  const auto at = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return std::round(values[at] * 1e7) / 10;  // us, a tenth
}

template <typename Kind>
void CallOnce(Kind& kind, Target& target, bool counts) {
  typename Kind::Response response;
  const auto began = std::chrono::steady_clock::now();
  const grpc::Status status = kind.Call(target, &response);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (!status.ok()) {
    Fail(target.name + ": " + status.error_message());
  }
  if (counts) {
    const double compute = static_cast<double>(response.timing().compute_ns()) * 1e-9;
    target.seconds.push_back(took.count());
    target.compute.push_back(compute);
    target.overhead.push_back(took.count() - compute);
  }
}

template <typename Kind>
void Run(const std::string& name, int calls, std::vector<std::unique_ptr<Target>>& targets,
         int64_t d_model) {
  Kind kind(d_model);
  for (int block = 0; block * kBlockCalls < calls; ++block) {
    for (size_t turn = 0; turn < targets.size(); ++turn) {
      Target& target = *targets[(static_cast<size_t>(block) + turn) % targets.size()];
      for (int i = -kUncounted; i < kBlockCalls; ++i) {
        CallOnce(kind, target, i >= 0);
      }
    }
  }
  nlohmann::ordered_json out = {{"case", name}, {"bytes", kind.bytes()}, {"calls", calls}};
  for (const auto& target : targets) {
    out["targets"].push_back({{"name", target->name},
                              {"p50", Percentile(target->seconds, 0.5)},
                              {"p99", Percentile(target->seconds, 0.99)},
                              {"compute_p50", Percentile(target->compute, 0.5)},
                              {"overhead_p50", Percentile(target->overhead, 0.5)},
                              {"overhead_p99", Percentile(target->overhead, 0.99)}});
  }
  std::printf("%s\n", out.dump(2).c_str());
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3 || (arguments[0] != "prefill" && arguments[0] != "decode") ||
      std::atoi(arguments[1].c_str()) < 1) {
    Fail("usage: bench_wire prefill|decode CALLS NAME=HOST:PORT...");
  }
  const int calls = std::atoi(arguments[1].c_str());
  std::vector<std::unique_ptr<Target>> targets;
  int64_t d_model = 0;
  for (size_t i = 2; i < arguments.size(); ++i) {
    targets.push_back(Connect(arguments[i]));
    d_model = d_model == 0 ? targets.back()->d_model : d_model;
  }
  if (d_model == 0) {
    Fail("one of the servers must be attnd: its model says how wide the rows are");
  }
  if (arguments[0] == "prefill") {
    Run<Prefill>("prefill", calls, targets, d_model);
  } else {
    Run<Decode>("decode", calls, targets, d_model);
  }
  return 0;
}

}  // namespace
}  // namespace attnd

int main(int argc, char** argv) { return attnd::Main({argv + 1, argv + argc}); }
