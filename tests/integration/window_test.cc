// Around the window: the lengths at which a local layer begins to forget, what a global layer
// still sees then, and the way back. Held against a float64 forward pass of all rows.
#include "core/model_config.h"
#include "tests/integration/tiny_server.h"
#include "tests/support/golden.h"
#include "tests/support/reference_answers.h"

namespace attnd {
namespace {

constexpr int64_t kWidth = 32;
constexpr uint32_t kLocal = 0, kGlobal = 1, kLayers = 2;
constexpr int64_t kMaxRewind = 8;

std::string Model(int64_t window) {
  return R"(model:
  d_model: 32
  n_layers: 2
  n_heads_q: 4
  n_heads_kv: 2
  d_head: 16
  d_kv_compressed: 16
  d_q_compressed: 24
  d_head_rope: 8
  max_seq_len: 4096
attention:
  global_layer_freq: 2
  local_window: )" +
         std::to_string(window) + "\n";
}

class WindowTest : public testing::TestWithParam<int64_t> {
 protected:
  v1::Tensor Rows(int64_t begin, int64_t count) const {
    return MakeTensor(RowsOf(rows_, kWidth, begin, count), kWidth);
  }
  std::vector<float> Right(uint32_t layer, int64_t begin, int64_t count) const {
    return RowsOf(right_[layer], kWidth, begin, count);
  }
  void ExpectRight(const std::vector<float>& answers, uint32_t layer, int64_t position) {
    const auto rows = static_cast<int64_t>(answers.size()) / kWidth;
    const Verdict verdict = Compare(answers, Right(layer, position, rows), kGoldenF32);
    EXPECT_TRUE(verdict.passed) << "layer " << layer << " at " << position << ": " << verdict.text;
  }

  const int64_t window_ = GetParam();
  const int64_t count_ = 4 * window_ + 150;
  const std::vector<float> rows_ = RandomRows(1, count_, kWidth);
  TempDir dir_;
  const std::string model_ = dir_.Write("model.yaml", Model(window_));
  const LayerPlan plan_ = MakeLayerPlan(*LoadModelConfig(model_));
  const std::unique_ptr<WeightSource> weights_ = *OpenWeights("random:7", plan_);
  const std::vector<std::vector<float>> right_ = {
      ReferenceAnswers(plan_, weights_.get(), kLocal, rows_, 0),
      ReferenceAnswers(plan_, weights_.get(), kGlobal, rows_, 0)};
  ReadyServer server_{{"--model=" + model_, "--weights=random:7", "--kv_cache_bytes=16MiB",
                       "--max_rewind=" + std::to_string(kMaxRewind)}};
  Wire wire_{server_.grpc()};
};

TEST_P(WindowTest, AnswersAreRightWhereTheLengthReachesTheWindow) {
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const std::string one_by_one = wire_.Create();
    for (int64_t i = 0; i < 2 * window_ + 3; ++i) {
      ExpectRight(wire_.Decode(layer, {{one_by_one, i}}, Rows(i, 1)), layer, i);
    }
    for (const int64_t length :
         {window_ - 1, window_, window_ + 1, 2 * window_ - 1, 2 * window_, 2 * window_ + 1}) {
      const std::string session = wire_.Create();
      if (length > 0) {
        ExpectRight(wire_.Prefill(session, layer, 0, Rows(0, length)), layer, 0);
      }
      ExpectRight(wire_.Decode(layer, {{session, length}}, Rows(length, 1)), layer, length);
      ExpectRight(wire_.Prefill(session, layer, length + 1, Rows(length + 1, 2)), layer,
                  length + 1);
      EXPECT_EQ(wire_.Length(session, static_cast<int>(layer)), length + 3);
      wire_.Close(session);
    }
  }
}

// The first layer is local: neither its window nor the rows that it has dropped are the others'.
TEST_P(WindowTest, AGlobalLayerStillSeesItsFirstTokenFourWindowsLater) {
  const int64_t last = 4 * window_;
  std::vector<float> other = rows_;
  std::fill_n(other.begin(), kWidth, 1.5f);
  std::vector<std::vector<float>> answers;
  for (const bool changed : {false, true}) {
    const std::string session = wire_.Create();
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const std::vector<float>& rows = changed ? other : rows_;
      wire_.Prefill(session, layer, 0, MakeTensor(RowsOf(rows, kWidth, 0, last), kWidth));
      answers.push_back(wire_.Decode(layer, {{session, last}}, Rows(last, 1)));
      for (int64_t i = last + 1; i < last + 20 && !changed; ++i) {
        // Positions go on: a global layer's rotary angles tell.
        ExpectRight(wire_.Decode(layer, {{session, i}}, Rows(i, 1)), layer, i);
      }
    }
  }
  EXPECT_EQ(answers[0], answers[2]) << "the local layer does not see it any more";
  ExpectRight(answers[0], kLocal, last);
  ExpectRight(answers[1], kGlobal, last);
  EXPECT_FALSE(Compare(answers[3], answers[1], 1e-3).passed) << "the global layer does";
}

TEST_P(WindowTest, ManyTokensAtOnceAreForgottenAsOneByOne) {
  const std::string at_once = wire_.Create();
  const std::string one_by_one = wire_.Create();
  wire_.Prefill(at_once, kLocal, 0, Rows(0, 5));
  wire_.Prefill(at_once, kLocal, 5, Rows(5, count_ - 6));
  for (int64_t i = 0; i < count_ - 1; ++i) {
    wire_.Decode(kLocal, {{one_by_one, i}}, Rows(i, 1));
  }
  v1::Session info;
  const auto held = [&](const std::string& session) {
    ExpectRight(wire_.Decode(kLocal, {{session, count_ - 1}}, Rows(count_ - 1, 1)), kLocal,
                count_ - 1);
    EXPECT_TRUE(wire_.Get(session, &info).ok());
    return info.cache_bytes();
  };
  EXPECT_EQ(held(at_once), held(one_by_one));
}

TEST_P(WindowTest, ARewindAfterManyTokensIsExactOrRefusedByAllLayers) {
  const int64_t length = count_ - 10;
  int accepted = 0;
  for (int64_t back = 1; back < length; back += back <= kMaxRewind ? 1 : 23) {
    const std::string session = wire_.Create();
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      wire_.Prefill(session, layer, 0, Rows(0, 3));
      wire_.Prefill(session, layer, 3, Rows(3, length - 3));
    }
    v1::Session info;
    const Outcome outcome = wire_.Rewind(session, length - back, &info);
    accepted += outcome.ok() ? 1 : 0;
    EXPECT_EQ(outcome.text(),
              back <= kMaxRewind ? std::string("OK") : "FAILED_PRECONDITION REWIND_TOO_FAR")
        << back;
    const int64_t now = outcome.ok() ? length - back : length;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      ASSERT_EQ(wire_.Length(session, static_cast<int>(layer)), now) << "all layers or none";
      ExpectRight(wire_.Decode(layer, {{session, now, 2}}, Rows(now, 2)), layer, now);
    }
    wire_.Close(session);
  }
  EXPECT_EQ(accepted, kMaxRewind);
}

INSTANTIATE_TEST_SUITE_P(Windows, WindowTest, testing::Values(1, 2, 16, 64),
                         [](const auto& instance) { return std::to_string(instance.param); });

}  // namespace
}  // namespace attnd
