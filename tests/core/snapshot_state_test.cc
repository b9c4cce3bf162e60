// Headers of imported sessions: what passes can be stepped, cut and repeated, whatever was sent.
#include "core/snapshot_state.h"

#include <gtest/gtest.h>

#include <random>

#include "core/draft.h"
#include "core/snapshot_import.h"
#include "core/visible.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/test_engine.h"

namespace attnd {
namespace {

constexpr int64_t kRewind = 20;

class SnapshotStateTest : public testing::Test {
 protected:
  static ModelConfig Config(int64_t window) {
    ModelConfig config = TinyConfig(window, 2);
    config.max_seq_len = 500;
    return config;
  }
  void Make(int64_t window) {
    TestEngineOptions options;
    options.engine.max_rewind = kRewind;
    options.engine.kv_cache_bytes = int64_t{16} << 20;
    engine_ = std::make_unique<TestEngine>(Config(window), "random:1", options);
  }
  Engine& engine() { return engine_->engine(); }

  SnapshotState State(int64_t prefix) {
    SnapshotState state;
    state.spec.id = "import-" + std::to_string(next_id_++);
    state.spec.prefix_length = prefix;
    state.spec.idle_ttl_ns = -1;
    state.layers.resize(2);
    return state;
  }

  // Begins and grows a step of `rows` rows at `position` on the local layer, if it may run; every
  // chunk finds the pages of the keys that its rows see.
  void Step(Session* session, int64_t position, int64_t rows) {
    const LayerRules rules = session->Rules(0);
    SequenceStep part;
    part.position = position;
    part.rows = rows;
    part.rewind = true;
    LayerCache cache = session->Cache(0);
    if (!CheckPosition(cache, rules, StepKind::kPrefill, part, {500, 0}).ok()) {
      return;
    }
    const StepShape shape{position, rows, OutputRows::kAll};
    const StepPlan plan = PlanStep(engine().plan(), rules, shape, {24, 1e18});
    absl::StatusOr<Draft> draft = BeginDraft(std::move(cache), rules, shape, plan,
                                             session->account(), &engine().pool(), backend_.get());
    ASSERT_TRUE(draft.ok()) << draft.status();
    for (const Chunk& chunk : plan.chunks) {
      GrowDraft(chunk, &*draft);
      const LayerCache& grown = draft->cache;
      for (int64_t row = chunk.query_begin; row < chunk.query_end; ++row) {
        const Interval keys = Visible(LayerKind::kLocal, row, rules.prefix, rules.window);
        ASSERT_LE(grown.first_page * 64, keys.lo) << "row " << row << " of " << position;
        ASSERT_GE((grown.first_page + grown.main.size()) * 64, keys.hi);
      }
      for (int64_t row = std::max(chunk.query_begin, int64_t{0}); row < position; ++row) {
        ASSERT_GT(grown.held.size() * kHeldPageRows, row);  // its hidden values are read again
      }
    }
    FinishDraft(&*draft);
  }

  absl::StatusOr<std::shared_ptr<Session>> Import(const SnapshotState& state) {
    absl::StatusOr<std::unique_ptr<SnapshotImport>> import = engine().BeginImport(state);
    if (!import.ok()) {
      return import.status();
    }
    (*import)->Write(std::string(static_cast<size_t>((*import)->bytes()), '\0'), backend_.get());
    if (const absl::StatusOr<SessionInfo> info = (*import)->Publish(); !info.ok()) {
      return info.status();
    }
    return engine().sessions().Find("", state.spec.id);
  }

  std::unique_ptr<TestEngine> engine_;
  std::unique_ptr<kernels::Backend> backend_ = *kernels::MakeCpuBackend({1, "best"});
  int64_t next_id_ = 0;
};

TEST_F(SnapshotStateTest, WhateverPassesCanBeStepped) {
  const auto seed = static_cast<uint32_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  int64_t passed = 0;
  for (const int64_t window : {1, 7, 64, 70}) {
    Make(window);
    for (int i = 0; i < 60'000; ++i) {
      SnapshotState state = State(pick(3) == 0 ? pick(140) : 0);
      LayerState& s = state.layers[0];
      s.length = pick(4) == 0 ? pick(500) : 64 * pick(4) + pick(3);
      s.first = pick(2) == 0 ? 0 : pick(std::max<int64_t>(1, s.length));
      s.last_step_start = pick(s.length + 2) - 1;
      s.page_start = 64 * pick(s.length / 64 + 2);
      s.tail_start = pick(2) == 0 ? 0 : 64 * pick(4);
      s.tail_end = pick(2) == 0 ? s.tail_start : s.tail_start + 64 * pick(4);
      const int64_t held[] = {0, s.length, std::max<int64_t>(0, s.last_step_start), pick(100)};
      s.held_rows = held[pick(4)];
      const bool valid = CheckState(engine().plan(), state).ok();
      const absl::StatusOr<std::shared_ptr<Session>> session = Import(state);
      ASSERT_EQ(session.ok(), valid) << session.status();
      if (!valid) {
        continue;
      }
      ++passed;
      const LayerCache cache = (*session)->Cache(0);
      if (s.length >= state.spec.prefix_length) {
        // Whatever max_rewind the other server has, what a reservation counts on between steps.
        ASSERT_LE(cache.main.size(), (window + kRewind + 63) / 64 + 1);
        ASSERT_LE(cache.tail.size(),
                  std::max((state.spec.prefix_length + 63) / 64, (window + 63) / 64 + 1));
      }
      Step(session->get(), s.length, 1 + pick(80));
      Step(session->get(), std::max<int64_t>(0, s.last_step_start), 1 + pick(80));
      for (int n = 0; n < 8; ++n) {
        Step(session->get(), pick(s.length + 1), 1 + pick(80));
      }
      ASSERT_FALSE(HasFailure()) << "length " << s.length << " first " << s.first << " last "
                                 << s.last_step_start << " page " << s.page_start << " tail "
                                 << s.tail_start << " to " << s.tail_end << " held " << s.held_rows
                                 << " prefix " << state.spec.prefix_length << " window " << window;
      ASSERT_TRUE(engine().sessions().Close("", state.spec.id).ok());
    }
  }
  EXPECT_GT(passed, 1000);
  EXPECT_EQ(engine().pool().stats().used_bytes, PerKind{});
}

TEST_F(SnapshotStateTest, NamesTheLayerAndTheNumber) {
  Make(8);
  SnapshotState state = State(0);
  state.layers[1].length = 501;
  EXPECT_EQ(CheckState(engine().plan(), state).message(),
            "layer 1: layer_lengths is 501; expected 0 to 500");
  state.layers[1] = {};
  state.layers[0].page_start = 32;
  state.layers[0].length = 100;
  EXPECT_EQ(CheckState(engine().plan(), state).message(),
            "layer 0: page_start is 32; expected a multiple of 64");
  state.layers.pop_back();
  EXPECT_EQ(CheckState(engine().plan(), state).message(), "the header has 1 layers; expected 2");
}

}  // namespace
}  // namespace attnd
