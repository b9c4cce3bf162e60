// The load of one client, beside whatever else the server does; prints JSON.
//
//   bench_load HOST:PORT decode SESSIONS HISTORY
//   bench_load HOST:PORT prefill ROWS
//
// decode: one row of each session after HISTORY rows, in a step a layer, each as soon as the one
// before is answered. Prints "ready" when it begins and goes on until its standard input ends;
// then the times of the steps in ms. prefill: a session of ROWS rows in every layer, layer by
// layer, in the calls that the client library makes of them; the seconds of each layer.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/step_stream.h"
#include "nlohmann/json.hpp"
#include "tests/bench/kernel_cases.h"
#include "tests/bench/must.h"

namespace attnd::bench {
namespace {

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

nlohmann::json Times(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double share) {
    return ms[static_cast<size_t>(share * static_cast<double>(ms.size() - 1))];
  };
  return {{"steps", ms.size()}, {"p50", at(0.5)}, {"p99", at(0.99)}, {"max", ms.back()}};
}

nlohmann::json Decode(client::Client& client, int64_t sessions, int64_t history) {
  const int64_t d_model = Must(client.Model()).d_model();
  std::vector<std::unique_ptr<client::Session>> opened;
  client::DecodeStep step;
  for (int64_t i = 0; i < sessions; ++i) {
    opened.push_back(Must(client.CreateSession({})));
    for (int64_t layer = 0; layer < opened.back()->num_layers(); ++layer) {
      Must(opened.back()->Prefill(layer, Values(history * d_model, static_cast<uint64_t>(i))));
    }
    step.sequences.push_back({opened.back()->id(), history, 1, /*rewind=*/true, 0});
  }
  step.hidden = Values(sessions * d_model, 1);
  const auto stream = Must(client::StepStream::Open(client));
  const auto round = [&](std::vector<double>* ms) {
    for (step.layer = 0; step.layer < opened.front()->num_layers(); ++step.layer) {
      const auto begin = std::chrono::steady_clock::now();
      const client::StepResult result = stream->Submit(step).get();
      ms->push_back(Seconds(begin) * 1e3);
      Must(result.status);
      std::for_each(result.sequences.begin(), result.sequences.end(),
                    [](const absl::Status& status) { Must(status); });
    }
  };
  std::vector<double> warm_up, ms;
  for (int i = 0; i < 10; ++i) {
    round(&warm_up);
  }
  std::atomic<bool> ended{false};
  std::thread watch([&] {
    while (std::getchar() != EOF) {
    }
    ended = true;
  });
  std::puts("ready");
  std::fflush(stdout);
  while (!ended) {
    round(&ms);
  }
  watch.join();
  return ms.empty() ? nlohmann::json() : Times(ms);
}

nlohmann::json Prefill(client::Client& client, int64_t rows) {
  const std::vector<float> hidden = Values(rows * Must(client.Model()).d_model(), 1);
  const auto session = Must(client.CreateSession({}));
  nlohmann::json seconds = nlohmann::json::array();
  for (int64_t layer = 0; layer < session->num_layers(); ++layer) {
    const auto begin = std::chrono::steady_clock::now();
    Must(session->Prefill(layer, hidden));  // with its answer: else there is no attention
    seconds.push_back(Seconds(begin));
  }
  Must(session->Close());
  return {{"rows", rows}, {"seconds", seconds}};
}

int Main(const std::vector<std::string>& arguments) {
  const std::string kind = arguments.size() < 2 ? "" : arguments[1];
  if (!(kind == "decode" && arguments.size() == 4) &&
      !(kind == "prefill" && arguments.size() == 3)) {
    std::fputs("Usage: bench_load HOST:PORT decode SESSIONS HISTORY | prefill ROWS\n", stderr);
    return 2;
  }
  const auto client = Must(client::Client::Connect(arguments[0]));
  const int64_t count = std::atoll(arguments[2].c_str());
  const nlohmann::json result = kind == "prefill"
                                    ? Prefill(*client, count)
                                    : Decode(*client, count, std::atoll(arguments[3].c_str()));
  std::puts(result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) { return attnd::bench::Main({argv + 1, argv + argc}); }
