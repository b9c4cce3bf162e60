// An engine with shadows against one without: random steps of several sessions, pressure, expiry,
// and the golden cases decoded row by row.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "core/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/golden.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr int64_t kD = 64;  // APEX-1 tiny
constexpr int64_t kGlobal = 1;

int64_t PageBytes(const ModelConfig& config) {
  return kernels::kPageTokens * static_cast<int64_t>(sizeof(float)) *
         kernels::ShadowOf(MakeLayerPlan(config).global.shape).row_elements();
}

TestEngineOptions Options(int64_t mla_shadow_bytes, DType cache_dtype = DType::kF32) {
  TestEngineOptions options;
  options.engine.cache_dtype = cache_dtype;
  options.engine.max_rewind = 6;
  options.engine.prefill_chunk_rows = 30;
  options.engine.max_batch_rows = 40;
  options.engine.mla_shadow_bytes = mla_shadow_bytes;
  return options;
}

class EngineShadowTest : public testing::TestWithParam<DType> {
 protected:
  static ModelConfig Config() { return TinyConfig(8, 2); }
};

TEST_P(EngineShadowTest, RandomStepsAgreeWithAnEngineWithoutShadows) {
  const auto seed = static_cast<uint32_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  TestEngine with(Config(), "random:7", Options(12 * PageBytes(Config()), GetParam()));
  TestEngine without(Config(), "random:7", Options(0, GetParam()));
  struct Sequence {
    std::string id;
    int64_t length = 0;
  };
  std::vector<Sequence> sessions(4);
  const auto open = [&](Sequence* s) {
    const int64_t prefix = pick(3) == 0 ? 5 : 0;
    s->id = with.Create(prefix);
    without.Create(prefix, 0, s->id);
    s->length = 0;
  };
  std::for_each(sessions.begin(), sessions.end(), [&](Sequence& s) { open(&s); });
  const auto compare = [&](std::unique_ptr<Step> a, std::unique_ptr<Step> b) {
    a = with.Run(std::move(a));
    b = without.Run(std::move(b));
    EXPECT_EQ(ReasonOf(a->Outcome()), ReasonOf(b->Outcome()));
    const Verdict verdict = Compare(a->output, b->output, kGoldenF32);
    EXPECT_TRUE(verdict.passed || a->output.empty()) << verdict.text;
    return a->Outcome().ok();
  };
  int64_t most = 0;
  for (int round = 0; round < 250 && !HasFailure(); ++round) {
    Sequence& s = sessions[static_cast<size_t>(pick(4))];
    const int64_t kind = pick(12);
    if (kind == 0) {
      ASSERT_TRUE(with.engine().sessions().Close("", s.id).ok());
      ASSERT_TRUE(without.engine().sessions().Close("", s.id).ok());
      open(&s);
    } else if (kind == 1 && s.length > 0) {
      const int64_t to = pick(s.length + 1);
      if (compare(with.Rewind(s.id, to), without.Rewind(s.id, to))) {
        s.length = to;
      }
    } else if (kind == 2 || s.length < 5) {
      const std::vector<float> rows = RandomRows(random(), 5 + pick(150), kD);
      if (compare(with.Prefill(s.id, kGlobal, s.length, rows),
                  without.Prefill(s.id, kGlobal, s.length, rows))) {
        s.length += static_cast<int64_t>(rows.size()) / kD;
      }
    } else if (kind == 3) {  // together with another session
      Sequence& other = &s == &sessions[0] ? sessions[1] : sessions[0];
      const std::vector<float> rows = RandomRows(random(), 4, kD);
      std::vector<std::unique_ptr<Step>> steps;
      for (TestEngine* engine : {&with, &without}) {
        steps.push_back(
            engine->Decode({s.id, other.id}, kGlobal, {s.length, other.length}, rows, 2));
      }
      compare(std::move(steps[0]), std::move(steps[1]));
      s.length = with.Find(s.id)->Length(kGlobal);
      other.length = with.Find(other.id)->Length(kGlobal);
    } else {
      for (int64_t i = pick(20); i >= 0 && !HasFailure(); --i) {
        const int64_t back = std::min(s.length - 5, pick(6) == 0 ? pick(4) : 0);
        const int64_t tokens = pick(10) == 0 ? 50 : 1 + pick(2);
        const std::vector<float> rows = RandomRows(random(), tokens, kD);
        const int64_t at = s.length - back;
        auto a = with.Decode({s.id}, kGlobal, {at}, rows, tokens);
        auto b = without.Decode({s.id}, kGlobal, {at}, rows, tokens);
        a->sequences[0].rewind = b->sequences[0].rewind = true;
        if (compare(std::move(a), std::move(b))) {
          s.length = at + tokens;
        }
        most = std::max(most, with.engine().stats().shadow_bytes);
      }
    }
    for (const Sequence& each : sessions) {
      ASSERT_EQ(with.Find(each.id)->Length(kGlobal), each.length);
      ASSERT_EQ(without.Find(each.id)->Length(kGlobal), each.length);
    }
  }
  EXPECT_GT(most, 0) << "some layer became hot";
  for (const Sequence& s : sessions) {
    ASSERT_TRUE(with.engine().sessions().Close("", s.id).ok());
  }
  EXPECT_EQ(with.engine().stats().shadow_bytes, 0);
  EXPECT_EQ(without.engine().stats().shadow_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(DTypes, EngineShadowTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16, DType::kInt8),
                         [](const auto& dtype) { return std::string(DTypeName(dtype.param)); });

TEST(EngineShadowMemoryTest, ExpiryGivesTheShadowBack) {
  const ModelConfig config = TinyConfig(8, 2);
  TestEngine engine(config, "random:7", Options(4 * PageBytes(config)));
  const std::string id = engine.Create();
  for (int64_t i = 0; i < 70; ++i) {
    ASSERT_TRUE(
        engine.Run(engine.Decode({id}, kGlobal, {i}, RandomRows(static_cast<uint64_t>(i), 1, kD)))
            ->Outcome()
            .ok());
  }
  EXPECT_EQ(engine.engine().stats().shadow_bytes, 2 * PageBytes(config));
  EXPECT_EQ(engine.engine().sessions().Get("", id)->cache_bytes,
            2 * engine.engine().pool().page_bytes(PageKind::kGlobal))
      << "shadows do not count into the cache";
  engine.clock().Advance(engine.engine().options().idle_ttl_ns + 1);
  engine.RunAll();
  EXPECT_EQ(engine.engine().stats().store.expired, 1);
  EXPECT_EQ(engine.engine().stats().shadow_bytes, 0);
}

// Pages given back, and chosen to give way, while other threads end the sessions that hold them.
TEST(EngineShadowMemoryTest, SessionsEndWhileOthersDecode) {
  const ModelConfig config = TinyConfig(8, 2);
  const std::unique_ptr<WeightSource> weights = *OpenWeights("random:7", MakeLayerPlan(config));
  EngineOptions options = TestEngineOptions().engine;
  options.mla_shadow_bytes = 3 * PageBytes(config);
  const SystemClock clock;
  const std::unique_ptr<Engine> engine = *Engine::Create(
      config, weights.get(), *kernels::MakeCpuBackend({2, "best"}), options, clock, nullptr);
  engine->Start();
  std::atomic<int64_t> most{0};
  const auto client = [&](uint64_t seed) {
    for (int turn = 0; turn < 4; ++turn) {
      const std::string id = engine->sessions().Create({})->id;
      const auto session = *engine->sessions().Find("", id);
      for (int64_t position = 0; position < 80; ++position) {
        auto step = std::make_unique<Step>();
        step->kind = StepKind::kDecode;
        step->layer = kGlobal;
        step->sequences.emplace_back();
        step->sequences[0].session = session;
        step->sequences[0].position = position;
        step->sequences[0].rows = 1;
        step->hidden = RandomRows(seed, 1, kD);
        std::promise<std::unique_ptr<Step>> answer;
        step->done = [&](std::unique_ptr<Step> done) { answer.set_value(std::move(done)); };
        EXPECT_TRUE(engine->Enqueue(&step).ok());
        EXPECT_TRUE(answer.get_future().get()->Outcome().ok());
      }
      most = std::max<int64_t>(most, engine->stats().shadow_bytes);
      EXPECT_TRUE(engine->sessions().Close("", id).ok());
    }
  };
  std::vector<std::thread> clients;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    clients.emplace_back(client, seed);
  }
  std::for_each(clients.begin(), clients.end(), [](std::thread& thread) { thread.join(); });
  engine->Stop();
  EXPECT_GT(most, 0);
  EXPECT_EQ(engine->stats().shadow_bytes, 0);
}

TEST(EngineShadowMemoryTest, UntilALayerIsHotItsBitsAreThoseOfAnEngineWithoutShadows) {
  const ModelConfig config = TinyConfig(8, 2);
  TestEngine with(config, "random:7", Options(64 * PageBytes(config)));
  TestEngine without(config, "random:7", Options(0));
  const std::string id = with.Create();
  without.Create(0, 0, id);
  bool same = true;
  for (int64_t i = 1; i <= 2 * kHotDecodes; ++i) {
    const std::vector<float> row = RandomRows(static_cast<uint64_t>(i), 1, kD);
    const auto a = with.Run(with.Decode({id}, kGlobal, {i - 1}, row));
    const auto b = without.Run(without.Decode({id}, kGlobal, {i - 1}, row));
    if (i < kHotDecodes) {
      EXPECT_EQ(a->output, b->output) << i;
    }
    same = same && a->output == b->output;
  }
  EXPECT_FALSE(same) << "the shadow rounds otherwise";
}

TEST(EngineShadowMemoryTest, ACreateReportsTooFewBytes) {
  const ModelConfig config = TinyConfig(8, 2);
  const LayerPlan plan = MakeLayerPlan(config);
  EXPECT_TRUE(CheckShadowBytes(plan, 0).ok());
  EXPECT_TRUE(CheckShadowBytes(plan, PageBytes(config)).ok());
  EXPECT_FALSE(CheckShadowBytes(plan, PageBytes(config) - 1).ok());
}

// Every golden case as decodes of one row; cases with a prefix prefill that first.
TEST(EngineShadowGoldenTest, DecodesOverShadowsGiveTheGoldenAnswers) {
  for (const std::string model : {"apex1_tiny", "odd"}) {
    const std::string dir = GoldenDir() + "/" + model;
    const ModelConfig config = *LoadModelConfig(dir + "/model.yaml");
    const absl::StatusOr<std::vector<GoldenCase>> cases = LoadGolden(dir);
    ASSERT_TRUE(cases.ok()) << cases.status();
    for (const std::string& isa : kernels::CpuIsas()) {
      SCOPED_TRACE(model + ", " + isa);
      TestEngineOptions options;
      options.isa = isa;
      options.engine.mla_shadow_bytes = 64 * PageBytes(config);
      TestEngine engine(config, dir + "/model.safetensors", options);
      int64_t most = 0;
      for (const GoldenCase& c : *cases) {
        const std::string id = engine.Create(c.prefix);
        std::vector<float> out;
        if (c.prefix > 0) {
          out = engine
                    .Run(engine.Prefill(id, c.layer, 0,
                                        {c.x.begin(), c.x.begin() + c.prefix * c.d_model}))
                    ->output;
        }
        for (int64_t row = c.prefix; row < c.len; ++row) {
          const auto at = c.x.begin() + row * c.d_model;
          const auto step = engine.Run(engine.Decode({id}, c.layer, {row}, {at, at + c.d_model}));
          ASSERT_TRUE(step->Outcome().ok()) << step->Outcome();
          out.insert(out.end(), step->output.begin(), step->output.end());
        }
        const Verdict verdict = Compare(out, c.y, kGoldenF32);
        EXPECT_TRUE(verdict.passed) << verdict.text << ", layer " << c.layer << ", " << c.len;
        most = std::max(most, engine.engine().stats().shadow_bytes);
        ASSERT_TRUE(engine.engine().sessions().Close("", id).ok());
        EXPECT_EQ(engine.engine().stats().shadow_bytes, 0);
      }
      EXPECT_GT(most, 0);
    }
  }
}

}  // namespace
}  // namespace attnd
