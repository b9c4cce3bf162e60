// What attnctl bench accepts, and what a model allows.
#include "client/attnctl/bench_options.h"

#include <gtest/gtest.h>

#include "client/attnctl/command.h"

namespace attnd::attnctl {
namespace {

absl::StatusOr<BenchOptions> Parse(const std::vector<std::string>& words) {
  const absl::StatusOr<Args> args = Args::Parse(BenchFlags(), 0, words);
  return args.ok() ? BenchOptionsFrom(*args) : args.status();
}

std::string ErrorText(const std::vector<std::string>& words) {
  const absl::Status status = Parse(words).status();
  EXPECT_TRUE(status.ok() || IsUsageError(status)) << status;
  return std::string(status.message());
}

v1::ModelInfo Model() {
  v1::ModelInfo model;
  model.set_d_model(64);
  model.set_max_seq_len(256);
  model.set_max_rewind(64);
  for (int layer = 0; layer < 6; ++layer) {
    model.add_layers(v1::LAYER_KIND_LOCAL_GQA);
  }
  return model;
}

TEST(BenchOptions, LanesShareTheSessionsAndBoundTheConcurrency) {
  const auto options = Parse({"--sessions", "12", "--batch", "4", "--rate", "0.5"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->lanes(), 3);
  EXPECT_EQ(options->concurrency, 3);
  EXPECT_EQ(options->arrivals.rate, 0.5);
  EXPECT_EQ(options->end_ns(), 11'000'000'000);
  EXPECT_EQ(Parse({"--sessions", "1000"})->concurrency, 64);
  EXPECT_EQ(Parse({"--sessions", "1000", "--concurrency", "200"})->concurrency, 200);
}

TEST(BenchOptions, ErrorsNameTheFlagTheValueAndTheLimit) {
  EXPECT_EQ(ErrorText({"--mode", "both"}), "--mode: 'both'; expected decode, steps or prefill");
  EXPECT_EQ(ErrorText({"--arrivals=x"}), "--arrivals: 'x'; expected poisson or constant");
  EXPECT_EQ(ErrorText({"--rate", "0"}), "--rate: '0'; expected at least 0.001");
  EXPECT_EQ(ErrorText({"--duration=0"}), "--duration: '0'; expected at least 0.001");
  EXPECT_EQ(ErrorText({"--sessions", "10", "--batch", "4"}),
            "--sessions: '10'; expected a multiple of --batch, which is 4");
  EXPECT_EQ(ErrorText({"--sessions", "2", "--batch", "4"}),
            "--sessions: '2'; expected a multiple of --batch, which is 4");
  EXPECT_EQ(ErrorText({"--clients", "17"}),
            "--clients: '17'; expected at most --sessions / --batch, which is 16");
  EXPECT_EQ(ErrorText({"--mode", "prefill", "--batch", "2"}),
            "--batch: '2'; expected 1 with --mode prefill, whose calls name one session");
  EXPECT_EQ(ErrorText({"--mode", "prefill", "--prompt", "0"}),
            "--prompt: '0'; expected at least 1 row with --mode prefill");
  EXPECT_EQ(ErrorText({"--duration", "86400", "--interval", "0.5"}),
            "--interval: --duration has more than 100000 of them");
  EXPECT_EQ(ErrorText({}), "");
}

TEST(BenchShape, AllLayersOrOne) {
  EXPECT_EQ(BenchShapeFor(*Parse({}), Model())->layers, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(BenchShapeFor(*Parse({"--layers", "5"}), Model())->layers, std::vector<int64_t>{5});
  for (const char* bad : {"6", "-1", "1x", "none"}) {
    const absl::Status status = BenchShapeFor(*Parse({"--layers", bad}), Model()).status();
    EXPECT_TRUE(IsUsageError(status)) << bad;
    EXPECT_EQ(status.message(),
              "--layers: '" + std::string(bad) + "'; expected all, or a layer from 0 to 5");
  }
}

TEST(BenchShape, ThePromptLeavesRoomForWhatSessionsGrow) {
  EXPECT_EQ(BenchShapeFor(*Parse({"--prompt", "224"}), Model())->growth, 32);
  EXPECT_TRUE(IsUsageError(BenchShapeFor(*Parse({"--prompt", "225"}), Model()).status()));
  v1::ModelInfo model = Model();
  model.set_max_rewind(8);
  EXPECT_EQ(BenchShapeFor(*Parse({"--prompt", "248"}), model)->growth, 8);
  model.set_max_rewind(0);  // the last step can always be repeated
  EXPECT_EQ(BenchShapeFor(*Parse({"--prompt", "255"}), model)->growth, 1);
  const auto prefill = BenchShapeFor(*Parse({"--mode=prefill", "--prompt", "256"}), Model());
  ASSERT_TRUE(prefill.ok()) << prefill.status();
  EXPECT_EQ(prefill->rows, 256);
}

TEST(BenchShape, AServersNonsenseIsAnError) {
  v1::ModelInfo model = Model();
  model.set_d_model(1 << 30);
  EXPECT_EQ(BenchShapeFor(*Parse({}), model).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace attnd::attnctl
