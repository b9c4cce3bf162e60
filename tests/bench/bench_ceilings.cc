// Prints the machine's ceilings: float32 FMA rate of each instruction set and read bandwidth, on
// one thread and on all.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/bench/ceilings.h"

namespace attnd::bench {
namespace {

constexpr int kRounds = 5;

template <typename F>
double Median(const F& measure) {
  std::vector<double> values;
  for (int i = 0; i < kRounds; ++i) {
    values.push_back(measure());
  }
  std::sort(values.begin(), values.end());
  return values[kRounds / 2];
}

void Print(bool json) {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<int> counts = {1};
  if (all > 1) {
    counts.push_back(all);
  }
  bool first = true;
  if (json) {
    std::puts("[");
  } else {
    std::puts("what          threads  rate (median of 5)");
  }
  const auto row = [&](const char* what, int threads, double rate, const char* unit) {
    if (json) {
      std::printf("%s  {\"what\": \"%s\", \"threads\": %d, \"%s_per_s\": %.0f}", first ? "" : ",\n",
                  what, threads, unit, rate);
    } else {
      std::printf("%-12s %8d  %.1f G%s/s\n", what, threads, rate * 1e-9, unit);
    }
    first = false;
  };
  for (const int threads : counts) {
    for (const std::string& isa : CeilingIsas()) {
      row(("fma " + isa).c_str(), threads, Median([&] { return FmaRate(isa, threads, 10); }),
          "flop");
    }
    const ReadCeiling read(threads);
    row("read", threads, Median([&] { return read.Rate(); }), "byte");
  }
  if (json) {
    std::puts("\n]");
  }
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--isa") == 0) {
    std::puts(attnd::bench::CeilingIsas().front().c_str());
    return 0;
  }
  const bool json = argc == 2 && std::strcmp(argv[1], "--json") == 0;
  if (argc > 1 && !json) {
    const bool help = std::strcmp(argv[1], "--help") == 0;
    std::fputs(
        "Usage: bench_ceilings [--json | --isa]\n"
        "Measures what this machine can do at most, in a few seconds: the float32 multiply-add\n"
        "rate of each instruction set, and the bandwidth of reading memory beyond the caches, on\n"
        "one thread and on all. --isa only names the best instruction set.\n",
        help ? stdout : stderr);
    return help ? 0 : 2;
  }
  attnd::bench::Print(json);
  return 0;
}
