// The bench's sessions, made, used and closed.
#include "client/attnctl/bench_lanes.h"

#include <chrono>
#include <cstdio>
#include <future>
#include <random>
#include <thread>
#include <utility>

#include "client/attnctl/demo_rows.h"

namespace attnd::attnctl {
namespace {

constexpr std::chrono::milliseconds kGrace{500};

// "bench-9f3c21ab": says in a server's list whose session it is, and differs from run to run.
std::string RandomName() {
  std::random_device entropy;
  char text[32];
  std::snprintf(text, sizeof(text), "bench-%08x", static_cast<unsigned>(entropy()));
  return text;
}

// The server did not say so: the connection, a deadline or the stream failed.
bool Unheard(const absl::Status& status) {
  return !status.ok() && client::ErrorOf(status).reason.empty();
}

}  // namespace

absl::StatusOr<std::shared_ptr<client::StepStream>> BenchStream::Current() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stream_ == nullptr) {
    client::StreamOptions options;
    options.step_timeout = client_->options().deadline;
    auto opened = client::StepStream::Open(*client_, options);
    if (!opened.ok()) {
      return opened.status();
    }
    stream_ = *std::move(opened);
  }
  return stream_;
}

void BenchStream::Drop(const std::shared_ptr<client::StepStream>& stream) {
  std::shared_ptr<client::StepStream> ended;  // whose end is waited for without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stream_ == stream) {
    ended.swap(stream_);
  }
}

client::StepResult BenchStream::Send(const client::DecodeStep& step) {
  client::StepResult result;
  const auto stream = Current();
  if (!stream.ok()) {
    result.status = stream.status();
    return result;
  }
  std::future<client::StepResult> answer = (*stream)->Submit(step);
  // The server's own deadline comes first, unless there is no server.
  if (answer.wait_for(client_->options().deadline + kGrace) != std::future_status::ready) {
    Drop(*stream);
    result.status = absl::DeadlineExceededError("no answer to a step");
    return result;
  }
  result = answer.get();
  if (Unheard(result.status)) {
    Drop(*stream);
  }
  return result;
}

absl::Status BenchLanes::Lane::Judge(const absl::Status& whole,
                                     const std::vector<absl::Status>& parts) {
  absl::Status first = whole;
  for (size_t i = 0; i < sessions.size(); ++i) {
    // A call fails as a whole when all its sessions fail alike.
    const absl::Status& one = whole.ok() && i < parts.size() ? parts[i] : whole;
    lost[i] = lost[i] || one.code() == absl::StatusCode::kNotFound;
    first.Update(one);
  }
  return first;
}

BenchLanes::BenchLanes(const BenchOptions& options, const BenchShape& shape,
                       std::vector<std::unique_ptr<client::Client>> clients)
    : options_(options),
      shape_(shape),
      clients_(std::move(clients)),
      prompt_(
          DemoRows(static_cast<int64_t>(options.arrivals.seed), 0, options.prompt, shape.width)),
      rows_(DemoRows(static_cast<int64_t>(options.arrivals.seed), options.prompt, options.batch,
                     shape.width)),
      name_(RandomName()),
      lanes_(static_cast<size_t>(options.lanes())) {
  for (const auto& client : clients_) {
    streams_.push_back(std::make_unique<BenchStream>(client.get()));
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].client = clients_[i % clients_.size()].get();
    lanes_[i].stream = streams_[i % clients_.size()].get();
  }
}

absl::Status BenchLanes::ForEachLane(const std::function<absl::Status(Lane*)>& work) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  absl::Status first;  // guarded by mutex
  const auto work_off = [&] {
    for (size_t i; (i = next++) < lanes_.size();) {
      if (absl::Status status = work(&lanes_[i]); !status.ok()) {
        next = lanes_.size();
        const std::lock_guard<std::mutex> lock(mutex);
        first.Update(status);
      }
    }
  };
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < options_.concurrency; ++i) {
    threads.emplace_back(work_off);
  }
  work_off();
  for (std::thread& thread : threads) {
    thread.join();
  }
  return first;
}

absl::Status BenchLanes::Open() {
  return ForEachLane([this](Lane* lane) { return OpenLane(lane); });
}

absl::Status BenchLanes::OpenLane(Lane* lane) {
  while (static_cast<int64_t>(lane->sessions.size()) < options_.batch) {
    if (stopped_) {
      return absl::CancelledError("stopped");
    }
    auto session = OpenSession(lane->client);
    if (!session.ok()) {
      return session.status();
    }
    lane->sessions.push_back(*std::move(session));
    lane->lost.push_back(false);
    ++opened_;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<client::Session>> BenchLanes::OpenSession(client::Client* client) {
  client::CreateOptions create;
  create.session_id = name_ + "-" + std::to_string(ids_++);
  auto session = client->CreateSession(create);
  if (!session.ok() || options_.mode == BenchMode::kPrefill || prompt_.empty()) {
    return session;
  }
  client::PrefillOptions no_answer;
  no_answer.output_rows = client::OutputRows::kNone;
  for (const int64_t layer : shape_.layers) {
    const absl::Status filled = stopped_ ? absl::CancelledError("stopped")
                                         : (*session)->Prefill(layer, prompt_, no_answer).status();
    if (!filled.ok()) {
      (void)(*session)->Close();
      return filled;
    }
  }
  return session;
}

absl::Status BenchLanes::Close() {
  return ForEachLane([this](Lane* lane) { return CloseLane(lane); });
}

absl::Status BenchLanes::CloseLane(Lane* lane) {
  for (; !lane->sessions.empty(); lane->sessions.pop_back()) {
    const absl::Status closed = lane->sessions.back()->Close().status();
    if (!closed.ok() && closed.code() != absl::StatusCode::kNotFound) {
      return closed;
    }
  }
  return absl::OkStatus();
}

absl::Status BenchLanes::Send(int index) {
  Lane* lane = &lanes_[static_cast<size_t>(index)];
  for (const int64_t layer : shape_.layers) {
    const absl::Status status = options_.mode == BenchMode::kDecode  ? Decode(lane, layer)
                                : options_.mode == BenchMode::kSteps ? Step(lane, layer)
                                                                     : Prefill(lane, layer);
    if (!status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status BenchLanes::Decode(Lane* lane, int64_t layer) {
  std::vector<client::DecodeItem> items;
  for (const auto& session : lane->sessions) {
    items.push_back({session.get(), 1});
  }
  const auto result = lane->client->Decode(layer, items, rows_);
  return result.ok() ? lane->Judge(absl::OkStatus(), result->statuses)
                     : lane->Judge(result.status(), {});
}

absl::Status BenchLanes::Step(Lane* lane, int64_t layer) {
  client::DecodeStep step;
  step.layer = layer;
  step.hidden = rows_;
  for (const auto& session : lane->sessions) {
    // With `rewind` the step itself cuts the layer back.
    step.sequences.push_back(
        {session->id(), options_.prompt + lane->grown, 1, /*rewind=*/true, /*expected_length=*/0});
  }
  const client::StepResult result = lane->stream->Send(step);
  return lane->Judge(result.status, result.sequences);
}

absl::Status BenchLanes::Prefill(Lane* lane, int64_t layer) {
  return lane->Judge(lane->sessions.front()->Prefill(layer, prompt_).status(), {});
}

void BenchLanes::Restore(int index, const absl::Status& status) {
  Lane* lane = &lanes_[static_cast<size_t>(index)];
  const bool steps = options_.mode == BenchMode::kSteps;
  if (status.ok() && ++lane->grown < shape_.growth) {
    return;
  }
  if (status.ok() && steps) {
    lane->grown = 0;
  } else if (!steps || status.code() == absl::StatusCode::kNotFound) {
    CutBack(lane);
  }
}

void BenchLanes::CutBack(Lane* lane) {
  lane->grown = 0;
  const int64_t position = options_.mode == BenchMode::kPrefill ? 0 : options_.prompt;
  for (size_t i = 0; i < lane->sessions.size(); ++i) {
    // A failure shows again in the next request, where it counts.
    if (!lane->lost[i]) {
      (void)lane->sessions[i]->Rewind(position);
    } else if (auto anew = OpenSession(lane->client); anew.ok()) {
      lane->sessions[i] = *std::move(anew);
      lane->lost[i] = false;
    }
  }
}

}  // namespace attnd::attnctl
