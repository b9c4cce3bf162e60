#include "tests/core/session_player.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "core/draft.h"
#include "core/session_cut.h"
#include "core/snapshot_import.h"
#include "kernels/cache_layout.h"
#include "kernels/cpu/cpu_backend.h"

namespace attnd {
namespace {

constexpr int64_t kMaxSeqLen = 700, kSlabs = 12;

ModelConfig Config() {
  ModelConfig config = TinyConfig(70, 2);
  config.max_seq_len = kMaxSeqLen;
  // Pages of which a slab holds 8 to 12: a few sessions fill the pool.
  config.n_heads_kv = 4;
  config.d_head = 64;
  config.d_kv_compressed = 256;
  config.d_model = 1536;
  return config;
}

}  // namespace

Real::Real(bool evict)
    : plan(MakeLayerPlan(Config())),
      backend(*kernels::MakeCpuBackend({1, "best"})),
      memory(*backend->Allocate("a test's pool", kSlabs << 20)) {
  page_bytes[Index(PageKind::kGlobal)] = kernels::PageBytes(plan.global.shape, DType::kF32);
  page_bytes[Index(PageKind::kLocal)] = kernels::PageBytes(plan.local.shape, DType::kF32);
  page_bytes[Index(PageKind::kHeld)] = kHeldPageRows * plan.d_model * 4;
  pool = std::make_unique<PagePool>(memory.get(), page_bytes);
  StoreLimits limits;
  limits.max_rewind = kPlayerRewind;
  limits.idle_ttl_ns = kPlayerLongTtl;
  limits.max_idle_ttl_ns = kPlayerLongTtl;
  limits.max_sessions = 100;
  limits.chunk_rows = kPlayerChunkRows;
  limits.evict_idle = evict;
  store = std::make_unique<SessionStore>(plan, limits, pool.get(), clock);
  pool->SetReliever([this](int64_t bytes) { return store->MakeRoom(bytes); });
}

void Player::Play() {
  const int64_t choice = Pick(100);
  if (sessions_.empty() || (choice < 6 && sessions_.size() < 9)) {
    Create();
  } else if (choice < 60) {
    StepOn(Any());
  } else if (choice < 68) {
    Rewind(Any());
  } else if (choice < 70 && common_ != nullptr) {
    Fork(*common_, common_model_);
  } else if (choice < 76) {
    ForkOwn(Any());
  } else if (choice < 80 || sessions_.size() > 12) {
    Close(Any());
  } else if (choice < 84) {
    BeginExport(Any());
  } else if (choice < 94) {
    ReadExport();
  } else {
    Expire();
  }
  if (alone_) {
    CheckPool();
  }
  ++operations_;
}

std::pair<std::shared_ptr<Session>, ModelSession> Player::MakeCommon(int64_t rows) {
  CreateOptions options;
  options.id = NewId();
  options.max_tokens = rows;  // never evicted
  EXPECT_TRUE(real_.store->Create(options).ok());
  ModelSession model = NewModel(options.id, 0, rows, kPlayerLongTtl);
  const std::shared_ptr<Session> session = *real_.store->Find("", options.id);
  for (int64_t layer = 0; layer < 2; ++layer) {
    ModelStep step;
    for (int64_t i = 0; i < rows; ++i) {
      step.rows.push_back(static_cast<int64_t>(random_() >> 1));
    }
    absl::Status status = MakeError(Reason::kStepCancelled, "not tried yet");
    while (ReasonOf(status) == Reason::kStepCancelled) {
      status = Run(session.get(), layer, step);
    }
    EXPECT_TRUE(status.ok()) << status;
    model.layers[static_cast<size_t>(layer)].Append(step, [](const ModelPage&) { return false; });
  }
  return {session, model};
}

void Player::CloseAll() {
  common_.reset();
  exports_.clear();
  while (!sessions_.empty()) {
    Close(sessions_.begin()->first);
  }
}

void Player::Print() const {
  for (const auto& [outcome, count] : outcomes_) {
    std::printf("%-30s %9lld\n", outcome.c_str(), static_cast<long long>(count));
  }
}

ModelSession Player::NewModel(const std::string& id, int64_t prefix, int64_t max_tokens,
                              int64_t ttl) {
  ModelSession model;
  model.id = id;
  model.prefix = prefix;
  model.max_tokens = max_tokens;
  model.ttl_ns = ttl;
  model.last_use = real_.clock.Now();
  for (const LayerKind kind : real_.plan.layers) {
    ModelLayer& layer = model.layers.emplace_back();
    layer.local = kind == LayerKind::kLocal;
    layer.window = real_.plan.local.window;
    layer.max_rewind = kPlayerRewind;
    layer.prefix = prefix;
  }
  return model;
}

void Player::Create() {
  CreateOptions options;
  options.id = NewId();
  options.prefix_length = Pick(3) == 0 ? 1 + Pick(90) : 0;
  options.max_tokens = Pick(4) == 0 ? options.prefix_length + 1 + Pick(250) : 0;
  options.idle_ttl_ns = Pick(2) == 0 ? kPlayerTtl : kPlayerLongTtl;
  const absl::Status status = real_.store->Create(options).status();
  Count("create", status);
  if (Agrees(status, std::nullopt, false)) {
    sessions_[options.id] =
        NewModel(options.id, options.prefix_length, options.max_tokens, options.idle_ttl_ns);
  }
  FindEvicted();
}

std::shared_ptr<Session> Player::Find(const std::string& id) {
  auto session = real_.store->Find("", id);
  if (!session.ok()) {
    EXPECT_FALSE(alone_) << session.status();
    EXPECT_EQ(ReasonOf(session.status()), Reason::kSessionEvicted);
    sessions_.erase(id);
    return nullptr;
  }
  sessions_[id].last_use = real_.clock.Now();
  (*session)->Hold();
  return *session;
}

void Player::StepOn(const std::string& name) {
  const std::string id = name;
  const std::shared_ptr<Session> session = Find(id);
  if (session == nullptr) {
    return;
  }
  ModelSession& model = sessions_[id];
  const auto layer = static_cast<int64_t>(Pick(2));
  ModelLayer& list = model.layers[static_cast<size_t>(layer)];
  ModelStep step;
  step.decode = Pick(2) == 0;
  step.rewind = Pick(3) == 0;
  step.position = list.length();
  if (step.rewind && Pick(2) == 0) {
    step.position = std::max<int64_t>(0, list.last_start);
  } else if (step.rewind) {
    step.position = Pick(list.length() + 1);
  } else if (Pick(30) == 0) {
    step.position = std::max<int64_t>(0, list.length() - 2 + Pick(4));
  }
  for (int64_t n = step.decode || Pick(3) > 0 ? 1 + Pick(3) : 1 + Pick(150); n > 0; --n) {
    step.rows.push_back(static_cast<int64_t>(random_() >> 1));
  }
  const absl::Status status = Run(session.get(), layer, step);
  Count("step", status);
  if (ReasonOf(status) != Reason::kStepCancelled &&
      Agrees(status, model.Refuses(list, step, kMaxSeqLen), model.max_tokens > 0)) {
    list.Append(step, [&](const ModelPage& page) { return HeldElsewhere(page, id); });
  }
  LetGo(session);
  FindEvicted();
  CheckSession(id);
}

absl::Status Player::Run(Session* session, int64_t layer, const ModelStep& step) {
  const LayerRules rules = session->Rules(layer);
  SequenceStep part;
  part.position = step.position;
  part.rows = static_cast<int64_t>(step.rows.size());
  part.rewind = step.rewind;
  LayerCache cache = session->Cache(layer);
  if (absl::Status status = session->Open(); !status.ok()) {
    return status;
  }
  const PositionLimits limits{kMaxSeqLen, session->spec().max_tokens};
  if (absl::Status status = CheckPosition(
          cache, rules, step.decode ? StepKind::kDecode : StepKind::kPrefill, part, limits);
      !status.ok()) {
    return status;
  }
  const StepShape shape{part.position, part.rows, OutputRows::kAll};
  const StepPlan plan = PlanStep(real_.plan, rules, shape, {kPlayerChunkRows, 1e18});
  absl::StatusOr<Draft> draft = BeginDraft(std::move(cache), rules, shape, plan, session->account(),
                                           real_.pool.get(), real_.backend.get());
  if (!draft.ok()) {
    return draft.status();
  }
  for (const Chunk& chunk : plan.chunks) {
    if (Pick(20) == 0) {
      return MakeError(Reason::kStepCancelled, "between chunks");
    }
    GrowDraft(chunk, &*draft);
    for (int64_t row = chunk.append_begin; row < chunk.append_end; ++row) {
      const int64_t value = step.rows[static_cast<size_t>(row - step.position)];
      std::memcpy(MainRow(draft->cache.main, row - draft->cache.first_page * 64, rules.kind),
                  &value, sizeof(value));
      if (shape.end() < rules.prefix) {
        std::memcpy(HeldRow(draft->cache.held, row), &value, sizeof(value));
      }
    }
  }
  FinishDraft(&*draft);
  std::vector<std::pair<int64_t, LayerCache>> caches;
  caches.emplace_back(layer, std::move(draft->cache));
  return session->Commit(std::move(caches));
}

uint8_t* Player::MainRow(const PageList& pages, int64_t row, LayerKind kind) {
  const kernels::PageRows rows = kind == LayerKind::kLocal
                                     ? kernels::KeyRows(real_.plan.local.shape, DType::kF32, 0)
                                     : kernels::LatentRows(real_.plan.global.shape, DType::kF32);
  return real_.pool->data() + pages[row / 64] + rows.offset + row % 64 * rows.stride;
}

void Player::Rewind(const std::string& name) {
  const std::string id = name;
  const std::shared_ptr<Session> session = Find(id);
  if (session == nullptr) {
    return;
  }
  ModelSession& model = sessions_[id];
  int64_t longest = 0;
  for (const ModelLayer& layer : model.layers) {
    longest = std::max(longest, layer.length());
  }
  const int64_t position =
      Pick(3) == 0 ? Pick(longest + 1) : std::max<int64_t>(0, longest - Pick(30));
  const absl::Status status = RewindSession(real_.plan, position, session.get());
  Count("rewind", status);
  if (Agrees(status, model.RefusesRewind(position), true)) {
    for (ModelLayer& layer : model.layers) {
      if (layer.length() > position) {
        layer.Cut(position);
      }
    }
  }
  LetGo(session);
  CheckSession(id);
}

void Player::ForkOwn(const std::string& name) {
  const std::string id = name;
  if (const std::shared_ptr<Session> session = Find(id); session != nullptr) {
    Fork(*session, sessions_[id]);
    LetGo(session);
  }
}

void Player::Fork(const Session& session, const ModelSession& model) {
  ForkOptions options;
  options.id = NewId();
  options.position = Pick(2) == 0 ? 0 : Pick(model.layers[0].length() + 2);
  options.max_tokens = Pick(5) == 0 ? std::max(model.prefix, 1 + Pick(400)) : 0;
  options.idle_ttl_ns = Pick(2) == 0 ? kPlayerTtl : kPlayerLongTtl;
  const absl::Status status = real_.store->Fork(session, options).status();
  Count("fork", status);
  if (Agrees(status, model.RefusesFork(options.position, options.max_tokens), false)) {
    ModelSession fork = NewModel(options.id, model.prefix, options.max_tokens, options.idle_ttl_ns);
    fork.layers = model.Forked(options.position);
    sessions_[options.id] = std::move(fork);
    CheckSession(options.id);
  }
  FindEvicted();
}

void Player::Close(const std::string& name) {
  const std::string id = name;
  const absl::Status status = real_.store->Close("", id).status();
  if (alone_) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(ReasonOf(real_.store->Find("", id).status()),
            status.ok() ? Reason::kSessionClosed : Reason::kSessionEvicted);
  Count("close", status);
  sessions_.erase(id);
}

void Player::BeginExport(const std::string& name) {
  const std::string id = name;
  const std::shared_ptr<Session> session = Find(id);
  if (session == nullptr) {
    return;
  }
  const SnapshotSource source{real_.plan, DType::kF32, real_.pool.get(), real_.clock};
  absl::StatusOr<std::unique_ptr<Snapshot>> snapshot = Snapshot::Take(source, session, false);
  Count("export", snapshot.status());
  if (Agrees(snapshot.status(), std::nullopt, false) && exports_.size() < 2) {
    EXPECT_TRUE(CheckState(real_.plan, (*snapshot)->state()).ok())
        << CheckState(real_.plan, (*snapshot)->state());
    exports_.push_back({*std::move(snapshot), sessions_[id], {}});
  }
  LetGo(session);
  FindEvicted();
}

void Player::ReadExport() {
  if (exports_.empty()) {
    return;
  }
  OpenExport& open = exports_.front();
  const std::string bytes = open.snapshot->Read(1 + Pick(1 << 20), real_.backend.get());
  open.bytes += bytes;
  if (!bytes.empty() && Pick(12) > 0) {
    return;
  }
  if (bytes.empty()) {
    EXPECT_EQ(static_cast<int64_t>(open.bytes.size()), open.snapshot->bytes());
    Import(&open);
  }  // else the client is gone
  const std::string id = open.model.id;
  exports_.erase(exports_.begin());
  if (sessions_.contains(id)) {
    sessions_[id].last_use = real_.clock.Now();  // it was held
  }
}

void Player::Import(OpenExport* open) {
  SnapshotState state = open->snapshot->state();
  state.spec.id = NewId();
  // The original's session may have to make room.
  absl::StatusOr<std::unique_ptr<SnapshotImport>> import =
      SnapshotImport::Begin(real_.plan, real_.pool.get(), real_.store.get(), state);
  Count("import", import.status());
  FindEvicted();
  if (!Agrees(import.status(), std::nullopt, false)) {
    return;
  }
  std::string_view rest = open->bytes;
  while (!rest.empty()) {
    if (Pick(200) == 0) {
      return;  // half-finished
    }
    const auto n = std::min(rest.size(), static_cast<size_t>(1 + Pick(300'000)));
    (*import)->Write(rest.substr(0, n), real_.backend.get());
    rest.remove_prefix(n);
  }
  const absl::Status status = (*import)->Publish().status();
  EXPECT_TRUE(status.ok()) << status;
  ModelSession model =
      NewModel(state.spec.id, open->model.prefix, open->model.max_tokens, open->model.ttl_ns);
  model.layers = open->model.Imported();
  sessions_[model.id] = std::move(model);
  CheckSession(state.spec.id);
}

void Player::Expire() {
  if (!alone_) {
    return;  // the other players' sessions would end, too
  }
  real_.clock.Advance(Pick(400'000'000));
  real_.store->ReapExpired();
  const MonotonicNs now = real_.clock.Now();
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const bool due = it->second.last_use + it->second.ttl_ns <= now;
    if (due && !Exported(it->first)) {
      EXPECT_EQ(ReasonOf(real_.store->Find("", it->first).status()), Reason::kSessionExpired);
      it = sessions_.erase(it);
      continue;
    }
    ++it;
  }
}

}  // namespace attnd
