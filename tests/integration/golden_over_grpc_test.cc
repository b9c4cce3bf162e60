// The golden cases through the real server: every model, every storage type, many splits, by
// Prefill, Decode and Steps in turn, in every type of the wire; and with every --isa.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "core/model_config.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/integration/wire_client.h"
#include "tests/support/golden.h"
#include "tests/support/splits.h"

namespace attnd {
namespace {

// Sends the calls of one sequence; about every third goes over a Steps stream.
class Sender {
 public:
  Sender(Wire& wire, std::mt19937* random, v1::Dtype dtype)
      : wire_(wire), random_(*random), dtype_(dtype), steps_(wire) {}

  // The answers [len, d_model] in the order of their rows.
  std::vector<float> Answer(const GoldenCase& c, const Split& split) {
    const std::string session = wire_.Create(c.prefix);
    std::vector<float> out(c.x.size());
    for (const Call& call : split.calls) {
      const v1::Tensor hidden =
          MakeTensor(RowsOf(c.x, c.d_model, call.position, call.rows), c.d_model, dtype_);
      const auto [at, values] =
          call.decode ? Decode(session, c, call, hidden) : Prefill(session, c, call, hidden);
      const auto fits = static_cast<int64_t>(out.size()) - at * c.d_model;
      EXPECT_LE(static_cast<int64_t>(values.size()), fits);
      if (static_cast<int64_t>(values.size()) <= fits) {
        std::copy(values.begin(), values.end(), out.begin() + at * c.d_model);
      }
    }
    wire_.Close(session);
    return out;
  }

  Outcome Finish() {
    steps_.HalfClose();
    return steps_.Finish();
  }

 private:
  using Placed = std::pair<int64_t, std::vector<float>>;  // position of the first row, values

  bool Streams() { return random_() % 3 == 0; }

  v1::StepResponse Step(const v1::StepRequest& request) {
    EXPECT_TRUE(steps_.Write(request));
    v1::StepResponse response = steps_.Next();
    EXPECT_EQ(response.step_id(), request.step_id());
    EXPECT_EQ(StatusText(response.status()), "OK") << response.status().message();
    EXPECT_FALSE(response.more());
    return response;
  }

  Placed Prefill(const std::string& session, const GoldenCase& c, const Call& call,
                 const v1::Tensor& hidden) {
    const v1::PrefillRequest request =
        PrefillOf(session, static_cast<uint32_t>(c.layer), call.position, hidden);
    v1::PrefillResponse response;
    if (Streams()) {
      response = Step(StepOf(next_step_++, request)).prefill();
    } else {
      const Outcome outcome = wire_.Prefill(request, &response);
      EXPECT_TRUE(outcome.ok()) << outcome;
    }
    EXPECT_EQ(response.length(), call.position + call.rows);
    return {response.output_position(), Values(response.output())};
  }

  Placed Decode(const std::string& session, const GoldenCase& c, const Call& call,
                const v1::Tensor& hidden) {
    const v1::DecodeRequest request =
        DecodeOf(static_cast<uint32_t>(c.layer),
                 {{session, call.position, static_cast<uint32_t>(call.rows)}}, hidden);
    v1::DecodeResponse response;
    if (Streams()) {
      response = Step(StepOf(next_step_++, request)).decode();
    } else {
      const Outcome outcome = wire_.Decode(request, &response);
      EXPECT_TRUE(outcome.ok()) << outcome;
    }
    return {call.position, Values(response.output())};
  }

  Wire& wire_;
  std::mt19937& random_;
  const v1::Dtype dtype_;
  StepsCall steps_;
  uint64_t next_step_ = 1;
};

struct Storage {
  std::string flag;  // --cache_dtype, and --weight_dtype unless it is int8
  v1::Dtype wire;
  std::string name;
  std::string isa = "best";
};

class GoldenOverGrpcTest : public testing::TestWithParam<std::tuple<std::string, Storage>> {};

TEST_P(GoldenOverGrpcTest, EverySplitGivesTheGoldenAnswers) {
  const auto& [model, storage] = GetParam();
  const bool full = storage.flag == "f32" && storage.wire == v1::DTYPE_F32;
  const bool int8 = storage.flag == "int8";
  const double tolerance = full ? kGoldenF32 : int8 ? kGoldenInt8Cache : kGoldenHalfStorage;
  const std::string dir = GoldenDir() + "/" + model;
  const absl::StatusOr<ModelConfig> config = LoadModelConfig(dir + "/model.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  const absl::StatusOr<std::vector<GoldenCase>> cases = LoadGolden(dir);
  ASSERT_TRUE(cases.ok()) << cases.status();
  ReadyServer server({"--model=" + dir + "/model.yaml", "--weights=" + dir + "/model.safetensors",
                      "--weight_dtype=" + (int8 ? "f32" : storage.flag),
                      "--cache_dtype=" + storage.flag, "--isa=" + storage.isa,
                      "--prefill_chunk_rows=200", "--kv_cache_bytes=256MiB"});
  if (storage.isa != "best") {
    EXPECT_EQ(server.Ready("device"), "cpu:" + storage.isa);
  }
  Wire wire(server.grpc());

  const auto seed = static_cast<uint32_t>(std::random_device{}());
  std::mt19937 random(seed);
  Sender sender(wire, &random, storage.wire);
  double worst = 0;
  int runs = 0;
  for (const GoldenCase& c : *cases) {
    for (const Split& split : MakeSplits(c.len, c.prefix, config->local_window, &random)) {
      SCOPED_TRACE("layer " + std::to_string(c.layer) + ", " + std::to_string(c.len) +
                   " rows, prefix " + std::to_string(c.prefix) + ", split " + split.name +
                   ", seed " + std::to_string(seed));
      const Verdict verdict = Compare(sender.Answer(c, split), c.y, tolerance);
      EXPECT_TRUE(verdict.passed) << verdict.text;
      worst = std::max(worst, verdict.relative);
      ++runs;
    }
  }
  std::printf("golden, via gRPC: %-12s %-12s %3d runs, worst error %.1e of %.0e\n", model.c_str(),
              storage.name.c_str(), runs, worst, tolerance);
  EXPECT_TRUE(sender.Finish().ok());
  EXPECT_EQ(wire.Stats().kv_cache_used_bytes(), 0);
}

std::string NameOf(const testing::TestParamInfo<std::tuple<std::string, Storage>>& instance) {
  return std::get<0>(instance.param) + "_" + std::get<1>(instance.param).name;
}

INSTANTIATE_TEST_SUITE_P(
    Models, GoldenOverGrpcTest,
    testing::Combine(testing::ValuesIn(GoldenModels()),
                     testing::Values(Storage{"f32", v1::DTYPE_F32, "f32"},
                                     Storage{"bf16", v1::DTYPE_F32, "bf16"},
                                     Storage{"f16", v1::DTYPE_F32, "f16"},
                                     Storage{"int8", v1::DTYPE_F32, "int8"},
                                     Storage{"f32", v1::DTYPE_BF16, "f32_wire_bf16"},
                                     Storage{"f32", v1::DTYPE_F16, "f32_wire_f16"})),
    NameOf);

// In process every model runs on every instruction set: forward_pass_test.cc.
std::vector<Storage> Isas() {
  std::vector<Storage> all;
  for (const std::string& isa : kernels::CpuIsas()) {
    for (const std::string dtype : {"f32", "bf16", "f16", "int8"}) {
      all.push_back({dtype, v1::DTYPE_F32, dtype + "_" + isa, isa});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Isas, GoldenOverGrpcTest,
                         testing::Combine(testing::Values("odd", "mqa_yarn"),
                                          testing::ValuesIn(Isas())),
                         NameOf);

}  // namespace
}  // namespace attnd
