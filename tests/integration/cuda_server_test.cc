// The server on the CUDA backend: the emulated device answers over gRPC as the golden cases want,
// and what a card cannot do is refused in one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model_config.h"
#include "tests/integration/wire_client.h"
#include "tests/support/golden.h"

namespace attnd {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> Flags(const std::string& model, const std::vector<std::string>& more) {
  const std::string dir = GoldenDir() + "/" + model;
  std::vector<std::string> flags = {"--model=" + dir + "/model.yaml",
                                    "--weights=" + dir + "/model.safetensors", "--device=emulated",
                                    "--kv_cache_bytes=16MiB", "--max_batch_rows=128"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// All rows but the last as a Prefill, that as a Decode.
std::vector<float> Answer(Wire* wire, const GoldenCase& c) {
  const std::string session = wire->Create(c.prefix);
  const auto layer = static_cast<uint32_t>(c.layer);
  std::vector<float> out =
      wire->Prefill(session, layer, 0, MakeTensor(RowsOf(c.x, c.d_model, 0, c.len - 1), c.d_model));
  const std::vector<float> last = wire->Decode(
      layer, {{session, c.len - 1}}, MakeTensor(RowsOf(c.x, c.d_model, c.len - 1, 1), c.d_model));
  out.insert(out.end(), last.begin(), last.end());
  wire->Close(session);
  return out;
}

TEST(CudaServerTest, TheEmulatedDeviceAnswersAsTheGoldenCases) {
  for (const std::string cache : {"", "fp8_e4m3", "f32"}) {
    std::vector<std::string> more = {"--weight_dtype=" +
                                     std::string(cache == "f32" ? "f32" : "bf16")};
    if (!cache.empty()) {
      more.push_back("--cache_dtype=" + cache);
    }
    ReadyServer server(Flags("odd", more), ATTND_EMULATED_BINARY);
    EXPECT_EQ(server.Ready("device"), "emulated");
    Wire wire(server.grpc());
    const v1::ModelInfo model = wire.Model();
    EXPECT_EQ(model.cache_dtype(), cache.empty()    ? v1::DTYPE_BF16
                                   : cache == "f32" ? v1::DTYPE_F32
                                                    : v1::DTYPE_F8_E4M3);
    const double tolerance = cache.empty()    ? kGoldenHalfCompute
                             : cache == "f32" ? kGoldenF32
                                              : kGoldenFp8Cache;
    const absl::StatusOr<std::vector<GoldenCase>> cases = LoadGolden(GoldenDir() + "/odd");
    ASSERT_TRUE(cases.ok()) << cases.status();
    int compared = 0;
    for (const GoldenCase& c : *cases) {
      if (c.len < 20 || c.prefix >= c.len) {
        continue;
      }
      const Verdict verdict = Compare(Answer(&wire, c), c.y, tolerance);
      EXPECT_TRUE(verdict.passed) << cache << " layer " << c.layer << ": " << verdict.text;
      ++compared;
    }
    EXPECT_GE(compared, 6);
    EXPECT_EQ(wire.Stats().kv_cache_used_bytes(), 0);
  }
}

TEST(CudaServerTest, WhatTheDeviceDoesNotHaveIsRefusedInOneLine) {
  const struct {
    std::vector<std::string> flags;
    const char* words;
  } cases[] = {
      {{"--mla_shadow_bytes=1MiB"}, "--mla_shadow_bytes=1048576: device emulated keeps no shadows"},
      {{"--cache_dtype=int8"}, "--cache_dtype=int8: device emulated supports f32, bf16, f16"},
      {{"--kv_cache_bytes=1TiB"}, "the memory that may be used here is"},
      {{"--device=emulated:0"}, "--device=emulated:0: this build supports auto,"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> flags = Flags("odd", c.flags);
    flags.insert(flags.begin(), {"--listen=127.0.0.1:0", "--http="});
    ServerProcess process(flags, ATTND_EMULATED_BINARY);
    EXPECT_EQ(process.WaitExit(Seconds(20)), 2) << c.words;
    EXPECT_EQ(process.Stdout(), "");
    EXPECT_THAT(process.Stderr(), StartsWith("attnd: "));
    EXPECT_THAT(process.Stderr(), HasSubstr(c.words));
  }
}

// No build of attnd that a test starts has so many cards.
TEST(CudaServerTest, ACardThatIsNotThereIsRefusedInOneLine) {
  ServerProcess process(
      {"--model=builtin:apex1-tiny", "--device=cuda:63", "--listen=127.0.0.1:0", "--http="});
  EXPECT_EQ(process.WaitExit(Seconds(20)), 2);
  EXPECT_THAT(process.Stderr(), StartsWith("attnd: --device=cuda:63: "));
  EXPECT_EQ(process.Stderr().find('\n'), process.Stderr().size() - 1);
}

}  // namespace
}  // namespace attnd
