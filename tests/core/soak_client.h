// A thread's worth of clients of an engine: random operations on sessions of its own, each answer
// held against the history of its session.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/engine.h"
#include "tests/core/soak_history.h"
#include "tests/core/soak_ledger.h"

namespace attnd {

// How a step is disturbed.
enum class Disturbance : uint8_t { kNone, kCancel, kDeadline };

class SoakClient {
 public:
  // The references outlive the client.
  SoakClient(Engine& engine, const Clock& clock, const std::vector<SoakFamily>& families,
             SoakLedger& ledger, uint64_t number, uint64_t seed);

  // One random operation of the table.
  void Act();
  // Closes all of its sessions.
  void CloseAll();

 private:
  struct Operation {
    const char* name;
    int weight;
    void (SoakClient::*run)();
  };
  static const std::vector<Operation>& Operations();

  struct Soaked {
    std::string id;
    std::shared_ptr<Session> session;
    SoakHistory history;
    int64_t ttl_ns = 0;
    MonotonicNs touched = 0;  // no later than the engine's own idea of it
    bool closing = false;
    bool gone = false;
  };

  // The operations.
  void Create();
  void Close();
  void CloseUnderSteps();
  void Expire();
  void StepOne();
  void StepTogether();
  void Rewind();
  void Look();
  void Fork();
  void ExportImport();

  int64_t Draw(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool Chance(int percent) { return Draw(100) < percent; }
  bool Touch(Soaked* soaked);  // false: it has ended
  Soaked* AnySession();
  int64_t ChooseTtl();
  // Ends one of its sessions, another than `keep`, when it has as many as it may.
  void MakeRoom(const Soaked* keep);
  // A session that was just made takes part from now on.
  void Adopt(const std::string& id, const SoakHistory& history, int64_t ttl_ns, MonotonicNs sent);
  // A refusal for want of room, or a finding.
  void RefusedForRoom(const absl::Status& status, bool may_be_full, const std::string& what);
  SoakStep ChooseStep(const SoakHistory& history, size_t layer);
  Disturbance ChooseDisturbance();
  std::unique_ptr<Step> Build(Soaked* soaked, const SoakStep& step);
  // Queues the step, disturbs it and waits for its end; null when the queue refused it.
  std::unique_ptr<Step> Run(std::unique_ptr<Step> step, Disturbance disturbance);
  // Judges one part of a finished step; the rows of its answer begin at `first_row` of a Decode.
  void Judge(Soaked* soaked, const SoakStep& wanted, const Step& step, size_t part,
             int64_t first_row, Disturbance disturbance);
  void JudgeAnswer(const Soaked& soaked, const SoakStep& wanted, const Step& step,
                   int64_t first_row);
  // Runs an operation on the whole session; nullopt when the queue refused it.
  std::optional<absl::Status> Operate(
      Soaked* soaked, int64_t position, Disturbance disturbance,
      std::function<absl::Status(const std::shared_ptr<Session>&)> operation);
  // Judges the error of an operation that may be refused with these reasons.
  void JudgeError(Soaked* soaked, const absl::Status& status, const std::vector<Reason>& refusals,
                  Disturbance disturbance, const std::string& what);

  // Of an export and its import; a nullptr, nullopt or false says that it came to an end early.
  std::unique_ptr<Snapshot> Take(Soaked* soaked, bool move, Disturbance disturbance);
  std::optional<std::string> Read(Snapshot* snapshot);
  bool Import(SnapshotState state, const SoakHistory& history, const std::string& bytes);
  // Has the job run where the server has it run, and waits; false, and a finding, when it does not.
  bool OnEngine(std::function<void(kernels::Backend*)> job);
  // What becomes of a session while its snapshot is read.
  void ActBeside(Soaked* soaked, bool moving);
  // All of a move was sent: the session is closed, or takes steps again.
  void EndMove(Soaked* soaked, bool arrived);

  // Whether the reason says that the session has ended; a finding if it must not have.
  bool Ended(Soaked* soaked, const absl::Status& status);
  void End(Soaked* soaked);
  void Forget();  // those that have ended

  Engine& engine_;
  const Clock& clock_;
  const std::vector<SoakFamily>& families_;
  SoakLedger& ledger_;
  const uint64_t number_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Soaked>> sessions_;
  int64_t imports_ = 0;
  MonotonicNs last_sent_ = 0;  // when Run() last queued a step
  double service_ns_ = 1e6;    // what a step takes now
};

}  // namespace attnd
