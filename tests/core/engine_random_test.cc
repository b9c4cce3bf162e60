// Random prefills, decodes, rewinds, repetitions and cancels against a model of plain lists:
// what is accepted, the lengths, and every answer.
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "tests/support/golden.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr int64_t kD = 64, kRewind = 6, kMaxRows = 400;

// One layer of a session, as the wire contract describes it.
struct Model {
  int64_t prefix = 0;
  bool local = false;
  int64_t window = 0;
  std::vector<std::vector<float>> rows;  // [length][kD]
  int64_t first = 0;
  int64_t last_start = 0;

  int64_t length() const { return static_cast<int64_t>(rows.size()); }
  bool MayCut(int64_t p) const {
    if (p == 0 || p == length() || p == last_start) {
      return true;
    }
    if (p < prefix && length() >= prefix) {
      return false;
    }
    return !local || first == 0 || p >= first + window;
  }
  void Cut(int64_t p) {
    rows.resize(static_cast<size_t>(p));
    first = p == 0 ? 0 : first;
    last_start = p < last_start ? -1 : last_start;
  }
  void Append(int64_t p, const std::vector<float>& hidden) {
    for (size_t i = 0; i < hidden.size(); i += kD) {
      rows.emplace_back(hidden.begin() + static_cast<int64_t>(i),
                        hidden.begin() + static_cast<int64_t>(i) + kD);
    }
    last_start = p;
    if (local && length() >= prefix) {
      first = std::max(first, length() - window - kRewind);
    }
  }
  std::vector<float> Flat() const {
    std::vector<float> flat;
    for (const auto& row : rows) {
      flat.insert(flat.end(), row.begin(), row.end());
    }
    return flat;
  }
};

class EngineRandomTest : public testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t>> {
 protected:
  static TestEngineOptions Options() {
    TestEngineOptions options;
    options.engine.max_rewind = kRewind;
    options.engine.prefill_chunk_rows = 30;
    options.engine.max_batch_rows = 40;
    return options;
  }
  std::vector<float> Forward(const Model& model, int64_t layer) {
    const std::string id = engine_.Create(model.prefix);
    auto step = engine_.Run(engine_.Prefill(id, layer, 0, model.Flat()));
    EXPECT_TRUE(step->Outcome().ok()) << step->Outcome();
    EXPECT_TRUE(engine_.engine().sessions().Close("", id).ok());
    return step->output;
  }
  TestEngine engine_{TinyConfig(std::get<2>(GetParam()), 2), "random:7", Options()};
};

TEST_P(EngineRandomTest, AgreesWithPlainLists) {
  const auto& [layer, prefix, window] = GetParam();
  const auto seed = static_cast<uint32_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  Model model;
  model.prefix = prefix;
  model.local = layer == 0;
  model.window = window;
  const std::string id = engine_.Create(prefix);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 400 && !HasFailure(); ++i) {
    const bool repeat = model.last_start >= 0 && pick(4) == 0;
    int64_t p = model.length();
    if (repeat) {
      p = model.last_start;
    } else if (p > 0 && (pick(3) == 0 || p > kMaxRows)) {
      p = p > kMaxRows ? 0 : std::max<int64_t>(0, p - pick(pick(2) == 0 ? kRewind + 3 : 200));
    }
    if (pick(8) == 0) {  // RewindSession, of the one layer that has rows
      auto step = engine_.Run(engine_.Rewind(id, p));
      ASSERT_EQ(step->Outcome().ok(), model.MayCut(p)) << step->Outcome();
      if (step->Outcome().ok()) {
        model.Cut(p);
      }
      continue;
    }
    const int64_t n = 1 + pick(pick(3) == 0 ? 120 : 8);
    const std::vector<float> hidden = RandomRows(random(), n, kD);
    const bool decode = pick(3) == 0;
    auto step = decode ? engine_.Decode({id}, layer, {p}, hidden, n)
                       : engine_.Prefill(id, layer, p, hidden);
    step->sequences[0].rewind = p < model.length();
    const bool cancel = pick(6) == 0;
    const auto cancelled = step->cancelled;
    engine_.Enqueue(std::move(step));
    if (cancel) {
      engine_.engine().RunOnce();
      cancelled->store(true);
      engine_.engine().Poke();
    }
    engine_.RunAll();
    step = std::move(engine_.finished().back());
    engine_.finished().clear();
    const bool expected = model.MayCut(p) && (!decode || p >= prefix);
    if (ReasonOf(step->Outcome()) == Reason::kStepCancelled) {
      EXPECT_TRUE(cancel);
    } else {
      ASSERT_EQ(step->Outcome().ok(), expected) << step->Outcome() << " at " << p;
    }
    if (step->Outcome().ok()) {
      model.Cut(p);
      model.Append(p, hidden);
      ++accepted;
      const std::vector<float> all = model.length() >= prefix ? Forward(model, layer) : hidden;
      if (!step->output.empty()) {
        const int64_t from = decode ? p : step->output_position;
        EXPECT_EQ(from, p < prefix ? 0 : p);
        const Verdict verdict =
            Compare(step->output, {all.begin() + from * kD, all.end()}, kGoldenF32);
        EXPECT_TRUE(verdict.passed) << verdict.text << " at " << p << ", length " << model.length();
      } else {
        EXPECT_LT(model.length(), prefix);
      }
    } else {
      ++refused;
    }
    EXPECT_EQ(engine_.Find(id)->Length(layer), model.length());
    engine_.engine().pool().Audit();
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 3);
  ASSERT_TRUE(engine_.engine().sessions().Close("", id).ok());
  EXPECT_EQ(engine_.engine().stats().pool.used_bytes, PerKind{});
}

INSTANTIATE_TEST_SUITE_P(LayersAndPrefixes, EngineRandomTest,
                         testing::Combine(testing::Values(0, 1), testing::Values(0, 15, 70),
                                          testing::Values(1, 20, 64)));

}  // namespace
}  // namespace attnd
