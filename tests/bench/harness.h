// What the benchmarks share: their flags, the machine's ceilings among the measurements, and the
// work of an iteration as counters, so that the JSON has rates.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

namespace attnd::bench {

struct Setting {
  std::string isa;
  int threads = 1;
};

// FLOP and bytes of one iteration.
void Count(benchmark::State& state, double flop, double bytes);

// One thread is timed by its CPU time, so that other work on the machine does not count; several
// by the clock.
void Add(const Setting& setting, const std::string& name,
         const std::function<void(benchmark::State&)>& f);

// Takes --isa=NAME (default: the best) and --threads=N (default 1) out of the command line, adds
// the benchmarks ceiling_fma and ceiling_read and those of `add`, and runs what Google
// Benchmark's flags choose. Returns the exit code.
int RunBenchmarks(int argc, char** argv, const std::function<void(const Setting&)>& add);

}  // namespace attnd::bench
