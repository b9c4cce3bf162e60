// The sessions that a SoakClient copies: forks, exports that are imported under another name, and
// moves; some are given up in the middle.
#include <algorithm>
#include <chrono>
#include <future>
#include <string_view>
#include <utility>

#include "tests/core/soak_client.h"

namespace attnd {
namespace {

constexpr auto kBound = std::chrono::seconds(90);
constexpr int64_t kMostBytes = 40'000;  // of a part: pages and pieces of them

}  // namespace

void SoakClient::Fork() {
  Soaked* parent = AnySession();
  if (parent == nullptr) {
    return;
  }
  MakeRoom(parent);
  const SoakFamily& family = parent->history.family();
  const int64_t longest = parent->history.longest();
  ForkOptions options;
  options.position = Chance(40)   ? 0
                     : Chance(50) ? Draw(longest + 2)
                                  : std::max<int64_t>(0, longest - Draw(10));
  options.max_tokens = Chance(25) ? std::max(family.prefix, 1 + Draw(family.rows)) : 0;
  options.idle_ttl_ns = ChooseTtl();
  const Disturbance disturbance = ChooseDisturbance();
  const auto id = std::make_shared<std::string>();
  const MonotonicNs sent = clock_.Now();
  const std::optional<absl::Status> status =
      Operate(parent, options.position, disturbance, [this, options, id](const auto& session) {
        const absl::StatusOr<SessionInfo> info = engine_.sessions().Fork(*session, options);
        *id = info.ok() ? info->id : "";
        return info.status();
      });
  if (!status.has_value()) {
    return;
  }
  std::vector<Reason> refusals = parent->history.ForkRefusals(options.position, options.max_tokens);
  if (status->ok() && refusals.empty()) {
    SoakHistory history = parent->history;
    history.ApplyFork(options.position, options.max_tokens);
    Adopt(*id, history, options.idle_ttl_ns, sent);
    ledger_.Count("forked");
    return;
  }
  if (refusals.empty()) {
    refusals.push_back(Reason::kTooManySessions);
    // Both keep what they have reserved, whichever of them writes.
    if (options.max_tokens > 0 || parent->history.reserved()) {
      refusals.push_back(Reason::kCacheFull);
    }
  }
  JudgeError(parent, *status, refusals, disturbance, "fork at " + std::to_string(options.position));
}

void SoakClient::ExportImport() {
  Soaked* soaked = AnySession();
  if (soaked == nullptr) {
    return;
  }
  MakeRoom(soaked);
  const bool move = Chance(40);
  std::unique_ptr<Snapshot> snapshot = Take(soaked, move, ChooseDisturbance());
  if (snapshot == nullptr) {
    return;
  }
  const SoakHistory moment = soaked->history;
  ActBeside(soaked, move);
  const std::optional<std::string> bytes = Read(snapshot.get());
  if (!bytes.has_value()) {
    ledger_.Count("exports given up");  // a session that moved takes steps again
    return;
  }
  if (move) {
    snapshot->SetSent();
  }
  const SnapshotState state = snapshot->state();
  snapshot.reset();
  const bool arrived = Import(state, moment, *bytes);
  if (move) {
    EndMove(soaked, arrived);
  }
}

std::unique_ptr<Snapshot> SoakClient::Take(Soaked* soaked, bool move, Disturbance disturbance) {
  const auto taken = std::make_shared<std::unique_ptr<Snapshot>>();
  const std::optional<absl::Status> status =
      Operate(soaked, 0, disturbance, [this, move, taken](const auto& session) {
        absl::StatusOr<std::unique_ptr<Snapshot>> snapshot = engine_.TakeSnapshot(session, move);
        if (snapshot.ok()) {
          *taken = *std::move(snapshot);
        }
        return snapshot.status();
      });
  if (!status.has_value()) {
    return nullptr;
  }
  if (!status->ok()) {
    std::vector<Reason> refusals;
    if (soaked->history.reserved() && !move) {
      refusals.push_back(Reason::kCacheFull);
    }
    JudgeError(soaked, *status, refusals, disturbance, move ? "move" : "export");
    return nullptr;
  }
  return std::move(*taken);
}

void SoakClient::ActBeside(Soaked* soaked, bool moving) {
  if (Chance(10)) {
    End(soaked);  // the snapshot keeps its pages
    return;
  }
  if (Chance(50)) {
    return;
  }
  const auto layer = static_cast<size_t>(Draw(engine_.plan().num_layers()));
  const SoakStep wanted = ChooseStep(soaked->history, layer);
  const std::unique_ptr<Step> step = Run(Build(soaked, wanted), Disturbance::kNone);
  if (step == nullptr) {
    return;
  }
  if (!moving) {
    Judge(soaked, wanted, *step, 0, 0, Disturbance::kNone);
    return;
  }
  const absl::Status& status = step->sequences[0].status;
  if (ReasonOf(status) == Reason::kSessionMoving) {
    ledger_.Refused(Reason::kSessionMoving);
  } else {
    ledger_.Find("step of a moving session", status.ToString());
  }
}

bool SoakClient::OnEngine(std::function<void(kernels::Backend*)> job) {
  const auto done = std::make_shared<std::promise<void>>();
  std::future<void> future = done->get_future();
  const bool posted = engine_.Post([job = std::move(job), done](kernels::Backend* backend) {
    job(backend);
    done->set_value();
  });
  if (!posted || future.wait_for(kBound) != std::future_status::ready) {
    ledger_.Find("stuck", posted ? "a job has not run within 90 s" : "a job was not taken");
    return false;
  }
  return true;
}

std::optional<std::string> SoakClient::Read(Snapshot* snapshot) {
  const bool give_up = Chance(20);
  std::string bytes;
  std::string part;
  do {
    if (give_up && Chance(30)) {
      return std::nullopt;
    }
    const int64_t most = 1 + Draw(kMostBytes);
    if (!OnEngine([&](kernels::Backend* backend) { part = snapshot->Read(most, backend); })) {
      return std::nullopt;
    }
    bytes += part;
  } while (!part.empty());
  if (static_cast<int64_t>(bytes.size()) != snapshot->bytes()) {
    ledger_.Find("wrong export",
                 std::to_string(bytes.size()) + " bytes, not " + std::to_string(snapshot->bytes()));
  }
  return bytes;
}

bool SoakClient::Import(SnapshotState state, const SoakHistory& history, const std::string& bytes) {
  state.spec.id = "import-" + std::to_string(number_) + "-" + std::to_string(++imports_);
  const MonotonicNs sent = clock_.Now();
  const absl::StatusOr<std::unique_ptr<SnapshotImport>> import = engine_.BeginImport(state);
  if (!import.ok()) {
    RefusedForRoom(import.status(), true, "import");
    return false;
  }
  const bool give_up = Chance(20);
  for (size_t at = 0; at < bytes.size();) {
    if (give_up && Chance(30)) {
      ledger_.Count("imports given up");  // its pages go with it
      return false;
    }
    const std::string_view part =
        std::string_view(bytes).substr(at, static_cast<size_t>(1 + Draw(kMostBytes)));
    if (!OnEngine([&](kernels::Backend* backend) { (*import)->Write(part, backend); })) {
      return false;
    }
    at += part.size();
  }
  const absl::StatusOr<SessionInfo> info = (*import)->Publish();
  if (!info.ok()) {
    RefusedForRoom(info.status(), false, "publish");
    return false;
  }
  Adopt(info->id, history, state.spec.idle_ttl_ns, sent);
  ledger_.Count("imported");
  return true;
}

void SoakClient::EndMove(Soaked* soaked, bool arrived) {
  if (arrived) {
    ledger_.Count("moved");
  }
  if (soaked->gone) {
    return;
  }
  // Whoever could not import it looks again, and lets go.
  if (arrived || Take(soaked, true, Disturbance::kNone) == nullptr) {
    End(soaked);
  }
}

}  // namespace attnd
