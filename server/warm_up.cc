// The first steps of a fresh engine.
#include "server/warm_up.h"

#include <future>
#include <memory>
#include <string>
#include <utility>

namespace attnd::server {
namespace {

// No tenant is called so: their names have no spaces.
constexpr char kTenant[] = "warm up";

absl::Status RunOne(Engine& engine, const std::shared_ptr<Session>& session, StepKind kind,
                    int64_t layer, int64_t position) {
  auto step = std::make_unique<Step>();
  step->kind = kind;
  step->layer = layer;
  SequenceStep& sequence = step->sequences.emplace_back();
  sequence.session = session;
  sequence.position = position;
  sequence.rows = 1;
  step->hidden.assign(static_cast<size_t>(engine.plan().d_model), 0.0F);
  std::promise<absl::Status> promise;
  std::future<absl::Status> outcome = promise.get_future();
  step->done = [&promise](std::unique_ptr<Step> done) { promise.set_value(done->Outcome()); };
  if (absl::Status status = engine.Enqueue(&step); !status.ok()) {
    return status;
  }
  return outcome.get();
}

}  // namespace

absl::Status WarmUp(Engine& engine) {
  CreateOptions options;
  options.tenant = kTenant;
  const absl::StatusOr<SessionInfo> info = engine.sessions().Create(options);
  if (!info.ok()) {
    return info.status();
  }
  absl::StatusOr<std::shared_ptr<Session>> session = engine.sessions().Find(kTenant, info->id);
  absl::Status status = session.status();
  for (LayerKind kind : {LayerKind::kLocal, LayerKind::kGlobal}) {
    for (int64_t layer = 0; status.ok() && layer < engine.plan().num_layers(); ++layer) {
      if (engine.plan().layers[static_cast<size_t>(layer)] == kind) {
        status = RunOne(engine, *session, StepKind::kPrefill, layer, 0);
        if (status.ok()) {
          status = RunOne(engine, *session, StepKind::kDecode, layer, 1);
        }
        break;
      }
    }
  }
  const absl::Status closed = engine.sessions().Close(kTenant, info->id).status();
  return status.ok() ? closed : status;
}

}  // namespace attnd::server
