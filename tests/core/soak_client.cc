#include "tests/core/soak_client.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/session_cut.h"

namespace attnd {
namespace {

constexpr size_t kMaxSessions = 4;  // of one client
constexpr int64_t kMs = 1'000'000;

}  // namespace

SoakClient::SoakClient(Engine& engine, const Clock& clock, const std::vector<SoakFamily>& families,
                       SoakLedger& ledger, uint64_t number, uint64_t seed)
    : engine_(engine),
      clock_(clock),
      families_(families),
      ledger_(ledger),
      number_(number),
      random_(seed * 1000 + number) {}

// A line here is all that an operation needs.
const std::vector<SoakClient::Operation>& SoakClient::Operations() {
  static const std::vector<Operation> operations = {
      {"create", 12, &SoakClient::Create},
      {"close", 2, &SoakClient::Close},
      {"close under steps", 2, &SoakClient::CloseUnderSteps},
      {"expire", 2, &SoakClient::Expire},
      {"step", 60, &SoakClient::StepOne},
      {"steps together", 20, &SoakClient::StepTogether},
      {"rewind", 8, &SoakClient::Rewind},
      {"look", 8, &SoakClient::Look},
      {"fork", 8, &SoakClient::Fork},
      {"export and import", 8, &SoakClient::ExportImport},
  };
  return operations;
}

void SoakClient::Act() {
  int64_t total = 0;
  for (const Operation& operation : Operations()) {
    total += operation.weight;
  }
  int64_t at = Draw(total);
  for (const Operation& operation : Operations()) {
    at -= operation.weight;
    if (at < 0) {
      ledger_.Count(operation.name);
      (this->*operation.run)();
      break;
    }
  }
  Forget();
}

void SoakClient::Forget() {
  std::erase_if(sessions_, [](const std::unique_ptr<Soaked>& soaked) { return soaked->gone; });
}

void SoakClient::CloseAll() {
  for (const auto& soaked : sessions_) {
    End(soaked.get());
  }
  sessions_.clear();
}

// A session that is there, its idle time restarted, as every call of the server does.
bool SoakClient::Touch(Soaked* soaked) {
  const MonotonicNs sent = clock_.Now();
  const auto found = engine_.sessions().Find("", soaked->id);
  if (found.ok()) {
    soaked->touched = sent;
  } else if (!Ended(soaked, found.status())) {
    ledger_.Find("unexpected refusal", "find: " + found.status().ToString());
  }
  return found.ok();
}

SoakClient::Soaked* SoakClient::AnySession() {
  if (sessions_.empty()) {
    return nullptr;
  }
  Soaked* soaked =
      sessions_[static_cast<size_t>(Draw(static_cast<int64_t>(sessions_.size())))].get();
  return Touch(soaked) ? soaked : nullptr;
}

int64_t SoakClient::ChooseTtl() { return Chance(15) ? (20 + Draw(200)) * kMs : 60'000 * kMs; }

void SoakClient::MakeRoom(const Soaked* keep) {
  if (sessions_.size() < kMaxSessions) {
    return;
  }
  Soaked* oldest = sessions_.front().get();
  End(oldest == keep ? sessions_[1].get() : oldest);
}

void SoakClient::Create() {
  MakeRoom(nullptr);
  const SoakFamily& family =
      families_[static_cast<size_t>(Draw(static_cast<int64_t>(families_.size())))];
  CreateOptions options;
  options.prefix_length = family.prefix;
  options.max_tokens = Chance(25) ? std::max(family.prefix, 1 + Draw(family.rows)) : 0;
  options.idle_ttl_ns = ChooseTtl();
  const MonotonicNs sent = clock_.Now();
  const absl::StatusOr<SessionInfo> info = engine_.sessions().Create(options);
  if (!info.ok()) {
    RefusedForRoom(info.status(), options.max_tokens > 0, "create");
    return;
  }
  const SoakHistory history(engine_.plan(), family, engine_.options().max_rewind,
                            options.max_tokens);
  Adopt(info->id, history, options.idle_ttl_ns, sent);
}

void SoakClient::Adopt(const std::string& id, const SoakHistory& history, int64_t ttl_ns,
                       MonotonicNs sent) {
  sessions_.push_back(
      std::make_unique<Soaked>(Soaked{id, nullptr, history, ttl_ns, sent, false, false}));
  Soaked* soaked = sessions_.back().get();
  auto session = engine_.sessions().Find("", id);
  if (session.ok()) {
    soaked->session = *std::move(session);
    return;
  }
  // The thread may have been away for as long as the session was to live.
  if (!Ended(soaked, session.status())) {
    ledger_.Find("unexpected refusal", "find: " + session.status().ToString());
  }
  soaked->gone = true;
}

void SoakClient::RefusedForRoom(const absl::Status& status, bool may_be_full,
                                const std::string& what) {
  const std::optional<Reason> reason = ReasonOf(status);
  if (reason == Reason::kTooManySessions || (reason == Reason::kCacheFull && may_be_full)) {
    ledger_.Refused(*reason);
  } else {
    ledger_.Find("unexpected refusal", what + ": " + status.ToString());
  }
}

void SoakClient::Close() {
  if (Soaked* soaked = AnySession()) {
    End(soaked);
  }
}

void SoakClient::End(Soaked* soaked) {
  soaked->closing = true;
  const absl::StatusOr<int64_t> freed = engine_.sessions().Close("", soaked->id);
  if (!freed.ok()) {
    Ended(soaked, freed.status());
  }
  soaked->gone = true;
}

void SoakClient::CloseUnderSteps() {
  Soaked* soaked = AnySession();
  if (soaked == nullptr) {
    return;
  }
  const SoakStep wanted = ChooseStep(soaked->history, 0);
  soaked->closing = true;
  std::thread closer([&] { engine_.sessions().Close("", soaked->id).status().IgnoreError(); });
  if (auto step = Run(Build(soaked, wanted), Disturbance::kNone)) {
    Judge(soaked, wanted, *step, 0, 0, Disturbance::kNone);
  }
  closer.join();
  soaked->gone = true;
}

void SoakClient::Expire() {
  for (const auto& soaked : sessions_) {
    if (soaked->ttl_ns < 1000 * kMs) {
      const int64_t nap = soaked->ttl_ns * (80 + Draw(50)) / 100;
      std::this_thread::sleep_for(std::chrono::nanoseconds(nap));
      Touch(soaked.get());
      return;
    }
  }
}

bool SoakClient::Ended(Soaked* soaked, const absl::Status& status) {
  const std::optional<Reason> reason = ReasonOf(status);
  const int64_t idle = clock_.Now() - soaked->touched;
  bool may = false;
  if (reason == Reason::kSessionExpired) {
    may = idle >= soaked->ttl_ns;
  } else if (reason == Reason::kSessionEvicted) {
    may = engine_.options().evict_idle && !soaked->history.reserved();
  } else if (reason == Reason::kSessionClosed) {
    may = soaked->closing;
  } else {
    return false;
  }
  if (!may) {
    ledger_.Find("unexpected refusal", status.ToString() + " after " + std::to_string(idle / kMs) +
                                           " ms of a ttl of " +
                                           std::to_string(soaked->ttl_ns / kMs));
  }
  ledger_.Refused(*reason);
  soaked->gone = true;
  return true;
}

void SoakClient::StepOne() {
  Soaked* soaked = AnySession();
  if (soaked == nullptr) {
    return;
  }
  const auto layer = static_cast<size_t>(Draw(engine_.plan().num_layers()));
  const SoakStep wanted = ChooseStep(soaked->history, layer);
  const Disturbance disturbance = ChooseDisturbance();
  if (auto step = Run(Build(soaked, wanted), disturbance)) {
    Judge(soaked, wanted, *step, 0, 0, disturbance);
  }
}

void SoakClient::StepTogether() {
  const auto layer = static_cast<size_t>(Draw(engine_.plan().num_layers()));
  std::vector<SoakStep> wanted;
  std::unique_ptr<Step> step;
  std::vector<Soaked*> parts;
  for (const auto& soaked : sessions_) {
    if (!Touch(soaked.get())) {
      continue;
    }
    parts.push_back(soaked.get());
    SoakStep one = ChooseStep(soaked->history, layer);
    if (one.position < soaked->history.family().prefix && !Chance(10)) {
      parts.pop_back();  // it would be refused
      continue;
    }
    one.decode = true;
    one.output_rows = OutputRows::kAll;
    auto built = Build(soaked.get(), one);
    wanted.push_back(one);
    if (step == nullptr) {
      step = std::move(built);
      continue;
    }
    step->sequences.push_back(std::move(built->sequences[0]));
    step->hidden.insert(step->hidden.end(), built->hidden.begin(), built->hidden.end());
  }
  if (step == nullptr) {
    return;
  }
  const Disturbance disturbance = ChooseDisturbance();
  step = Run(std::move(step), disturbance);
  int64_t row = 0;
  for (size_t i = 0; step != nullptr && i < wanted.size(); ++i) {
    Judge(parts[i], wanted[i], *step, i, row, disturbance);
    row += wanted[i].rows;
  }
}

void SoakClient::Rewind() {
  Soaked* soaked = AnySession();
  if (soaked == nullptr) {
    return;
  }
  const int64_t longest = soaked->history.longest();
  const int64_t position = Chance(30)   ? 0
                           : Chance(50) ? Draw(longest + 1)
                                        : std::max<int64_t>(0, longest - Draw(10));
  const Disturbance disturbance = ChooseDisturbance();
  const std::optional<absl::Status> status =
      Operate(soaked, position, disturbance, [this, position](const auto& session) {
        return RewindSession(engine_.plan(), position, session.get());
      });
  const std::vector<Reason> refusals = soaked->history.RewindRefusals(position);
  if (!status.has_value()) {
    return;
  }
  if (status->ok() && refusals.empty()) {
    soaked->history.ApplyRewind(position);
  } else {
    JudgeError(soaked, *status, refusals, disturbance, "rewind to " + std::to_string(position));
  }
}

void SoakClient::Look() {
  engine_.sessions().List("", 1 + Draw(20), "").status().IgnoreError();
  Soaked* soaked = AnySession();
  if (soaked == nullptr) {
    return;
  }
  const absl::StatusOr<SessionInfo> info = engine_.sessions().Get("", soaked->id);
  if (!info.ok()) {
    if (!Ended(soaked, info.status())) {
      ledger_.Find("unexpected refusal", "get: " + info.status().ToString());
    }
    return;
  }
  for (size_t i = 0; i < info->layer_lengths.size(); ++i) {
    if (info->layer_lengths[i] != soaked->history.layer(i).length) {
      ledger_.Find("wrong answer", "layer " + std::to_string(i) + " has length " +
                                       std::to_string(info->layer_lengths[i]) + ", not " +
                                       std::to_string(soaked->history.layer(i).length));
    }
  }
}

}  // namespace attnd
