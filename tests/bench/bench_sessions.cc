// Fills a server with sessions that each hold some rows in every layer, and prints how many bytes
// of pages they take, as JSON. The caller looks at the server's resident memory.
//
//   bench_sessions HOST:PORT SESSIONS ROWS
#include <cstdio>
#include <cstdlib>
#include <string>

#include "client/cpp/client.h"
#include "nlohmann/json.hpp"
#include "tests/bench/kernel_cases.h"

namespace attnd::bench {
namespace {

int Fill(const std::string& target, int64_t sessions, int64_t rows) {
  auto client = client::Client::Connect(target);
  absl::Status status = client.status();
  int64_t d_model = 0;
  if (client.ok()) {
    const auto model = (*client)->Model();
    status = model.status();
    d_model = model.ok() ? model->d_model() : 0;
  }
  const std::vector<float> hidden = Values(rows * d_model, 1);
  client::PrefillOptions no_answer;
  no_answer.output_rows = client::OutputRows::kNone;
  for (int64_t i = 0; status.ok() && i < sessions; ++i) {
    auto session = (*client)->CreateSession({});
    status = session.status();
    for (int64_t layer = 0; status.ok() && layer < (*session)->num_layers(); ++layer) {
      status = (*session)->Prefill(layer, hidden, no_answer).status();
    }
  }
  if (!status.ok()) {
    std::fprintf(stderr, "bench_sessions: %s\n", status.ToString().c_str());
    return 1;
  }
  const auto stats = (*client)->Stats();
  if (!stats.ok()) {
    std::fprintf(stderr, "bench_sessions: %s\n", stats.status().ToString().c_str());
    return 1;
  }
  const nlohmann::json result = {{"sessions", stats->sessions()},
                                 {"used_bytes", stats->kv_cache_used_bytes()}};
  std::puts(result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("Usage: bench_sessions HOST:PORT SESSIONS ROWS\n", stderr);
    return 2;
  }
  return attnd::bench::Fill(argv[1], std::atoll(argv[2]), std::atoll(argv[3]));
}
