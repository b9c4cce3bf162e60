// The demo's session through every layer, timed.
#include "client/attnctl/demo_run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "client/attnctl/demo_rows.h"

namespace attnd::attnctl {
namespace {

constexpr int64_t kPrefillRows = 1000;
constexpr int64_t kDecodeSteps = 100;

double NowNs() {
  return std::chrono::duration<double, std::nano>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Progress(bool show, const char* phase, int64_t done, int64_t all) {
  if (show) {
    std::fprintf(stderr, "\r%s %lld of %lld ", phase, static_cast<long long>(done),
                 static_cast<long long>(all));
  }
}

// Keeps the rows of `output`, whose first is at `position`, that are sampled.
void Keep(const DemoShape& shape, int64_t position, const std::vector<float>& output,
          std::vector<float>* kept) {
  const int64_t rows = static_cast<int64_t>(output.size()) / shape.width;
  for (int64_t sample : shape.sampled) {
    if (sample >= position && sample < position + rows) {
      const auto begin = output.begin() + (sample - position) * shape.width;
      kept->insert(kept->end(), begin, begin + shape.width);
    }
  }
}

absl::Status Prefill(client::Session& session, bool progress, DemoRun* run) {
  const DemoShape& shape = run->shape;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    Progress(progress, "prefill: layer", layer + 1, shape.layers);
    const std::vector<float> rows = DemoRows(layer, 0, shape.prefill_rows, shape.width);
    const double start = NowNs();
    const auto answer = session.Prefill(layer, rows);
    if (!answer.ok()) {
      return answer.status();
    }
    run->times.prefill_ns.push_back(NowNs() - start);
    run->times.prefill_compute_ns.push_back(static_cast<double>(answer->timing.compute_ns));
    Keep(shape, answer->output_position, answer->output, &run->answers[static_cast<size_t>(layer)]);
  }
  return absl::OkStatus();
}

absl::Status Decode(client::Client& client, client::Session& session, bool progress, DemoRun* run) {
  const DemoShape& shape = run->shape;
  const client::DecodeItem item{&session, 1};
  for (int64_t position = shape.prefill_rows; position < shape.rows(); ++position) {
    Progress(progress, "decode: token", position - shape.prefill_rows + 1, shape.decode_steps);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      const std::vector<float> row = DemoRows(layer, position, 1, shape.width);
      const double start = NowNs();
      const auto result = client.Decode(layer, std::span<const client::DecodeItem>(&item, 1), row);
      const absl::Status status = result.ok() ? result->statuses[0] : result.status();
      if (!status.ok()) {
        return status;
      }
      run->times.decode_ns.push_back(NowNs() - start);
      run->times.decode_compute_ns.push_back(static_cast<double>(result->timing.compute_ns));
      Keep(shape, position, result->output, &run->answers[static_cast<size_t>(layer)]);
    }
  }
  return absl::OkStatus();
}

absl::Status Run(client::Client& client, client::Session& session, bool progress, DemoRun* run) {
  if (run->shape.prefill_rows > 0) {
    if (absl::Status status = Prefill(session, progress, run); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = Decode(client, session, progress, run); !status.ok()) {
    return status;
  }
  auto held = session.Refresh();
  if (!held.ok()) {
    return held.status();
  }
  run->session = *std::move(held);
  return absl::OkStatus();
}

}  // namespace

DemoShape ShapeFor(const v1::ModelInfo& model) {
  DemoShape shape;
  shape.layers = model.layers_size();
  shape.width = model.d_model();
  shape.decode_steps = std::min(kDecodeSteps, model.max_seq_len());
  shape.prefill_rows = std::clamp<int64_t>(model.max_seq_len() - kDecodeSteps, 0, kPrefillRows);
  const int64_t n = shape.prefill_rows;
  const int64_t window = model.local_window();
  for (int64_t position : {int64_t{0}, int64_t{1}, n / 2, n - 1, n, n + shape.decode_steps / 2,
                           shape.rows() - 1, window - 1, window, window + 1}) {
    if (position >= 0 && position < shape.rows()) {
      shape.sampled.push_back(position);
    }
  }
  std::sort(shape.sampled.begin(), shape.sampled.end());
  shape.sampled.erase(std::unique(shape.sampled.begin(), shape.sampled.end()), shape.sampled.end());
  return shape;
}

absl::StatusOr<DemoRun> RunDemo(client::Client& client, const DemoShape& shape, bool progress) {
  client::CreateOptions create;
  create.max_tokens = shape.rows();
  auto session = client.CreateSession(create);
  if (!session.ok()) {
    return session.status();
  }
  DemoRun run;
  run.shape = shape;
  run.answers.resize(static_cast<size_t>(shape.layers));
  const absl::Status status = Run(client, **session, progress, &run);
  if (progress) {
    std::fputs("\r\033[K", stderr);
  }
  const auto closed = (*session)->Close();
  if (!status.ok()) {
    return status;
  }
  if (!closed.ok()) {
    return closed.status();
  }
  return run;
}

}  // namespace attnd::attnctl
