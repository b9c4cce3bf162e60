// The steps of a SoakClient: how one is chosen, run and judged.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "kernels/check.h"
#include "tests/core/soak_client.h"
#include "tests/support/golden.h"

namespace attnd {
namespace {

constexpr auto kBound = std::chrono::seconds(90);  // within which every step must end

// Waits for the end of one step; outlives the client that gave up on it.
struct Waiter {
  std::mutex mutex;
  std::condition_variable done;
  std::unique_ptr<Step> step;
};

std::string Text(const SoakStep& step) {
  return std::string(step.decode ? "decode" : "prefill") + " of layer " +
         std::to_string(step.layer) + " at " + std::to_string(step.position) + ", " +
         std::to_string(step.rows) + " rows, variant " + std::to_string(step.variant) +
         (step.rewind ? ", rewind" : "");
}

// The disturbance itself ended the step.
bool Stopped(std::optional<Reason> reason, Disturbance disturbance) {
  return (reason == Reason::kStepCancelled && disturbance == Disturbance::kCancel) ||
         (reason == Reason::kStepTimeout && disturbance == Disturbance::kDeadline);
}

}  // namespace

Disturbance SoakClient::ChooseDisturbance() {
  const int64_t draw = Draw(100);
  return draw < 60 ? Disturbance::kNone : draw < 80 ? Disturbance::kCancel : Disturbance::kDeadline;
}

SoakStep SoakClient::ChooseStep(const SoakHistory& history, size_t layer) {
  const SoakHistory::Layer& now = history.layer(layer);
  const SoakFamily& family = history.family();
  SoakStep step;
  step.layer = layer;
  step.position = now.length;
  const int64_t kind = Draw(100);
  if (kind < 8 && now.last_start >= 0) {
    step.position = now.last_start;
  } else if (kind < 16) {
    step.position = std::max<int64_t>(0, now.length - 1 - Draw(12));
  } else if (kind < 22) {
    step.position = Draw(now.length + 1);
  } else if (kind < 26) {
    step.position = 0;
  }
  if (step.position >= history.limit()) {
    step.position = 0;
  }
  const int64_t room = std::max<int64_t>(1, history.limit() - step.position);
  constexpr std::array<int64_t, 4> kMost = {1, 8, 40, 150};
  step.rows = 1 + Draw(std::min(room, kMost[static_cast<size_t>(Draw(4))]));
  if (step.position < family.prefix && Chance(30)) {
    step.rows = std::min(room, family.prefix - step.position + Draw(4));
  }
  std::vector<size_t> variants;
  for (size_t v = 0; v < family.hidden.size(); ++v) {
    if (family.Common(now.variant, v) >= step.position) {
      variants.push_back(v);
    }
  }
  step.variant = variants[static_cast<size_t>(Draw(static_cast<int64_t>(variants.size())))];
  step.rewind = step.position < now.length || Chance(10);
  step.decode = step.rows <= 16 && Chance(step.position >= family.prefix ? 60 : 3);
  if (!step.decode) {
    step.output_rows = Chance(70)   ? OutputRows::kAll
                       : Chance(50) ? OutputRows::kLast
                                    : OutputRows::kNone;
  }
  if (Chance(3)) {  // to be refused
    step.position = now.length + 1 + Draw(3);
    step.rewind = false;
  }
  return step;
}

std::unique_ptr<Step> SoakClient::Build(Soaked* soaked, const SoakStep& wanted) {
  auto step = std::make_unique<Step>();
  step->kind = wanted.decode ? StepKind::kDecode : StepKind::kPrefill;
  step->layer = static_cast<int64_t>(wanted.layer);
  step->output_rows = wanted.output_rows;
  step->connection = number_;
  SequenceStep part;
  part.session = soaked->session;
  part.position = wanted.position;
  part.rows = wanted.rows;
  part.rewind = wanted.rewind;
  step->sequences.push_back(std::move(part));
  step->hidden = soaked->history.Hidden(wanted);
  return step;
}

std::unique_ptr<Step> SoakClient::Run(std::unique_ptr<Step> step, Disturbance disturbance) {
  const MonotonicNs begin = clock_.Now();
  last_sent_ = begin;
  const auto wait = static_cast<int64_t>(service_ns_ * static_cast<double>(Draw(200)) / 100);
  if (disturbance == Disturbance::kDeadline) {
    step->deadline = begin + wait;
  }
  const auto waiter = std::make_shared<Waiter>();
  step->done = [waiter](std::unique_ptr<Step> done) {
    std::lock_guard lock(waiter->mutex);
    Check(waiter->step == nullptr, "a step is answered once");
    waiter->step = std::move(done);
    waiter->done.notify_one();
  };
  const auto cancelled = step->cancelled;
  const absl::Status queued = Chance(50) ? engine_.EnqueueOrRun(&step) : engine_.Enqueue(&step);
  if (!queued.ok()) {
    if (ReasonOf(queued) != Reason::kQueueFull) {
      ledger_.Find("unexpected refusal", "enqueue: " + queued.ToString());
    }
    ledger_.Refused(Reason::kQueueFull);
    std::this_thread::sleep_for(std::chrono::nanoseconds(wait));
    return nullptr;
  }
  ledger_.Count("steps");
  if (disturbance == Disturbance::kCancel) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(wait));
    cancelled->store(true);
    engine_.Poke();
  }
  std::unique_lock lock(waiter->mutex);
  if (!waiter->done.wait_for(lock, kBound, [&] { return waiter->step != nullptr; })) {
    ledger_.Find("stuck", "a step has not ended within 90 s");
    return nullptr;
  }
  service_ns_ += 0.05 * (static_cast<double>(clock_.Now() - begin) - service_ns_);
  return std::move(waiter->step);
}

std::optional<absl::Status> SoakClient::Operate(
    Soaked* soaked, int64_t position, Disturbance disturbance,
    std::function<absl::Status(const std::shared_ptr<Session>&)> operation) {
  auto step = std::make_unique<Step>();
  step->kind = StepKind::kOperation;
  step->operation = std::move(operation);
  step->connection = number_;
  SequenceStep part;
  part.session = soaked->session;
  part.position = position;
  step->sequences.push_back(std::move(part));
  step = Run(std::move(step), disturbance);
  if (step == nullptr) {
    return std::nullopt;
  }
  return step->Outcome();
}

void SoakClient::JudgeError(Soaked* soaked, const absl::Status& status,
                            const std::vector<Reason>& refusals, Disturbance disturbance,
                            const std::string& what) {
  const std::optional<Reason> reason = ReasonOf(status);
  if (!status.ok() && Ended(soaked, status)) {
    return;
  }
  const bool refused = reason && std::count(refusals.begin(), refusals.end(), *reason) > 0;
  if (refused || Stopped(reason, disturbance)) {
    ledger_.Refused(*reason);
  } else {
    ledger_.Find("unexpected refusal", what + ": " + status.ToString());
  }
}

void SoakClient::Judge(Soaked* soaked, const SoakStep& wanted, const Step& step, size_t part,
                       int64_t first_row, Disturbance disturbance) {
  const absl::Status& status = step.sequences[part].status;
  const std::optional<Reason> reason = ReasonOf(status);
  const std::optional<Reason> expected = soaked->history.Refusal(wanted);
  if (!status.ok() && Ended(soaked, status)) {
    return;
  }
  const bool stopped = Stopped(reason, disturbance);
  if (!status.ok() && !soaked->session->Alive().ok()) {
    return;  // it had ended before: what comes next will say so
  }
  soaked->touched = last_sent_;
  if (status.ok()) {
    if (expected.has_value()) {
      ledger_.Find("unexpected success", Text(wanted) + ": expected " + ReasonName(*expected));
    }
    JudgeAnswer(*soaked, wanted, step, first_row);
    soaked->history.Apply(wanted);
  } else if (stopped ||
             (reason == Reason::kCacheFull && !expected && !soaked->history.reserved()) ||
             (reason.has_value() && reason == expected)) {
    ledger_.Refused(*reason);
  } else {
    ledger_.Find("unexpected refusal", Text(wanted) + ": " + status.ToString() + "; expected " +
                                           (expected ? ReasonName(*expected) : "success"));
  }
  const int64_t length = soaked->history.layer(wanted.layer).length;
  if (step.sequences[part].length != length && !soaked->closing) {
    ledger_.Find("wrong answer", Text(wanted) + ": length " +
                                     std::to_string(step.sequences[part].length) + ", not " +
                                     std::to_string(length) + ", after " + status.ToString());
  }
}

void SoakClient::JudgeAnswer(const Soaked& soaked, const SoakStep& wanted, const Step& step,
                             int64_t first_row) {
  int64_t position = 0;
  const std::vector<float> expected = soaked.history.Expected(wanted, &position);
  std::vector<float> output = step.output;
  if (wanted.decode) {
    const auto begin = step.output.begin() + first_row * engine_.plan().d_model;
    output.assign(begin, begin + static_cast<int64_t>(expected.size()));
  } else if (step.output_position != position) {
    ledger_.Find("wrong answer", Text(wanted) + ": rows from " +
                                     std::to_string(step.output_position) + ", not " +
                                     std::to_string(position));
  }
  ledger_.Count("rows checked", static_cast<int64_t>(expected.size()) / engine_.plan().d_model);
  if (expected.empty() && output.empty()) {
    return;
  }
  if (const Verdict verdict = Compare(output, expected, kGoldenF32); !verdict.passed) {
    ledger_.Find("wrong answer", Text(wanted) + ": " + verdict.text);
  }
}

}  // namespace attnd
