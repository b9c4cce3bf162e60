// A thread's sessions under random operations: the real store, pool, drafts, snapshots and imports
// beside plain lists, compared after each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/session_store.h"
#include "core/snapshot.h"
#include "tests/core/session_model.h"
#include "tests/support/test_engine.h"

namespace attnd {

inline constexpr int64_t kPlayerRewind = 20, kPlayerChunkRows = 48;
inline constexpr int64_t kPlayerTtl = 2'000'000'000, kPlayerLongTtl = 1'000'000'000'000;

// What is under test, shared by all threads.
struct Real {
  explicit Real(bool evict);

  ManualClock clock;
  LayerPlan plan;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<kernels::DeviceMemory> memory;
  PerKind page_bytes{};
  std::unique_ptr<PagePool> pool;
  std::unique_ptr<SessionStore> store;
};

// A snapshot that is read while its session goes on.
struct OpenExport {
  std::unique_ptr<Snapshot> snapshot;
  ModelSession model;
  std::string bytes;
};

// One thread's sessions, real and as lists.
class Player {
 public:
  // Alone, a player knows all pages and all ends of sessions.
  Player(Real* real, uint32_t seed, std::string name, bool alone)
      : real_(*real), random_(seed), name_(std::move(name)), alone_(alone) {}

  void Play();

  // Forks of a session that no player steps on.
  void SetCommon(std::shared_ptr<Session> session, const ModelSession& model) {
    common_ = std::move(session);
    common_model_ = model;
  }
  // A session of so many rows on each layer, and its lists.
  std::pair<std::shared_ptr<Session>, ModelSession> MakeCommon(int64_t rows);

  void CloseAll();
  void Print() const;

 private:
  int64_t Pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  const std::string& Any() {
    return std::next(sessions_.begin(), Pick(static_cast<int64_t>(sessions_.size())))->first;
  }
  std::string NewId() { return name_ + "-" + std::to_string(next_id_++); }
  void Count(const char* operation, const absl::Status& status) {
    ++outcomes_[std::string(operation) + " " +
                (status.ok() ? "OK" : ReasonName(*ReasonOf(status)))];
  }

  // True when `status` is what the lists say; false ends the operation. CACHE_FULL is possible
  // everywhere but within a reservation.
  bool Agrees(const absl::Status& status, std::optional<Reason> expected, bool reserved);

  ModelSession NewModel(const std::string& id, int64_t prefix, int64_t max_tokens, int64_t ttl);

  void Create();

  // The session as a queue holds it; null when it has ended meanwhile, by another thread's need.
  std::shared_ptr<Session> Find(const std::string& id);
  void LetGo(const std::shared_ptr<Session>& session) { session->Unhold(real_.clock.Now()); }

  void StepOn(const std::string& name);

  // What the executor does with a step, less the computation.
  absl::Status Run(Session* session, int64_t layer, const ModelStep& step);

  // A row's number stands at the front of its first key, its latent, its hidden values.
  uint8_t* MainRow(const PageList& pages, int64_t row, LayerKind kind);
  uint8_t* HeldRow(const PageList& pages, int64_t row) {
    return real_.pool->data() + pages[row / kHeldPageRows] +
           row % kHeldPageRows * real_.plan.d_model * 4;
  }
  static bool IsRow(const uint8_t* at, int64_t value) {
    return std::memcmp(at, &value, sizeof(value)) == 0;
  }

  void Rewind(const std::string& name);

  void ForkOwn(const std::string& name);

  void Fork(const Session& session, const ModelSession& model);

  void Close(const std::string& name);

  void BeginExport(const std::string& name);

  void ReadExport();

  void Import(OpenExport* open);

  void Expire();

  // Those that made room were idle, unreserved, held pages, and were used before all others.
  void FindEvicted();
  // Without a restart of the idle time.
  absl::Status Alive(const std::string& id);
  bool Exported(const std::string& id) const {
    return std::any_of(exports_.begin(), exports_.end(),
                       [&](const OpenExport& open) { return open.model.id == id; });
  }

  bool HeldElsewhere(const ModelPage& page, const std::string& id) const;

  int64_t Bytes(const ModelSession& model) const;

  void CheckSession(const std::string& id);

  void CheckLayer(const LayerCache& cache, const ModelLayer& list);

  void CheckPool();

  Real& real_;
  std::mt19937 random_;
  const std::string name_;
  const bool alone_;
  int64_t operations_ = 0, next_id_ = 0;
  std::map<std::string, ModelSession> sessions_;
  std::vector<OpenExport> exports_;
  std::shared_ptr<Session> common_;
  ModelSession common_model_;
  std::map<std::string, int64_t> outcomes_;
};

}  // namespace attnd
