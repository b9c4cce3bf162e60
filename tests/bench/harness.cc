#include "tests/bench/harness.h"

#include <cstdlib>

#include "tests/bench/ceilings.h"

namespace attnd::bench {
namespace {

void Fma(benchmark::State& state, const Setting& setting) {
  double rate = 0;
  for (auto _ : state) {
    rate = FmaRate(setting.isa, setting.threads, 5);
    benchmark::DoNotOptimize(rate);
  }
  state.counters["flop"] = rate;
}

void Read(benchmark::State& state, const Setting& setting) {
  static const ReadCeiling ceiling(setting.threads);
  double rate = 0;
  for (auto _ : state) {
    rate = ceiling.Rate();
    benchmark::DoNotOptimize(rate);
  }
  state.counters["bytes"] = rate;
}

// Takes "--NAME=VALUE" out of argv.
std::string TakeFlag(const std::string& name, const std::string& otherwise, int* argc,
                     char** argv) {
  const std::string prefix = "--" + name + "=";
  for (int i = 1; i < *argc; ++i) {
    if (std::string(argv[i]).rfind(prefix, 0) == 0) {
      const std::string value = argv[i] + prefix.size();
      for (int j = i; j + 1 < *argc; ++j) {
        argv[j] = argv[j + 1];
      }
      --*argc;
      return value;
    }
  }
  return otherwise;
}

}  // namespace

void Count(benchmark::State& state, double flop, double bytes) {
  using benchmark::Counter;
  state.counters["flop"] = Counter(flop, Counter::kIsIterationInvariantRate);
  state.counters["bytes"] = Counter(bytes, Counter::kIsIterationInvariantRate);
}

void Add(const Setting& setting, const std::string& name,
         const std::function<void(benchmark::State&)>& f) {
  auto* added = benchmark::RegisterBenchmark(name.c_str(), f)->Unit(benchmark::kMillisecond);
  if (setting.threads > 1) {
    added->UseRealTime();
  }
}

int RunBenchmarks(int argc, char** argv, const std::function<void(const Setting&)>& add) {
  Setting setting;
  setting.isa = TakeFlag("isa", CeilingIsas().front(), &argc, argv);
  setting.threads = std::atoi(TakeFlag("threads", "1", &argc, argv).c_str());
  Add(setting, "ceiling_fma", [setting](benchmark::State& state) { Fma(state, setting); });
  Add(setting, "ceiling_read", [setting](benchmark::State& state) { Read(state, setting); });
  add(setting);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 2;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace attnd::bench
