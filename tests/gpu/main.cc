// gpu_check [--tiny | --small] [--suites A,B] [--seed N] [--golden FOLDER] [--out FILE]
//
// Every kernel on the device against float64, a line of JSON for each check. Exits 0 when all hold,
// 1 when one does not, 3 without a device.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/gpu/checks.h"

namespace {

using attnd::gpu::Size;

struct Options {
  Size size = Size::kFull;
  std::string suites = "fragments,elementwise,plain,gqa,latent,golden";
  std::string golden;
  std::string out;
  uint64_t seed = 1;
};

[[noreturn]] void Usage(const char* what) {
  std::fprintf(stderr, "gpu_check: %s\n", what);
  std::exit(2);
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--tiny" || argument == "--small") {
      options.size = argument == "--tiny" ? Size::kTiny : Size::kSmall;
      continue;
    }
    if (i + 1 == argc) {
      Usage("an argument without a value, or an unknown one");
    }
    const std::string value = argv[++i];
    if (argument == "--suites") {
      options.suites = value;
    } else if (argument == "--golden") {
      options.golden = value;
    } else if (argument == "--out") {
      options.out = value;
    } else if (argument == "--seed") {
      options.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else {
      Usage("unknown argument");
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  attnd::gpu::Device device;
  attnd::gpu::Report report(options.out);
  const auto wants = [&](const char* suite) {
    return ("," + options.suites + ",").find("," + std::string(suite) + ",") != std::string::npos;
  };
  const auto run = [&](const char* suite, const auto& check) {
    if (!wants(suite)) {
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    check();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "%s: %.1f s\n", suite, took.count());
  };
  run("fragments", [&] { CheckFragments(device, report); });
  run("elementwise", [&] { CheckElementwise(device, report, options.size); });
  run("plain", [&] { CheckPlain(device, report, options.size, options.seed); });
  run("gqa", [&] { CheckGqa(device, report, options.size, options.seed); });
  run("latent", [&] { CheckLatent(device, report, options.size, options.seed); });
  if (!options.golden.empty()) {
    run("golden", [&] { CheckGolden(device, report, options.size, options.golden); });
  }
  std::fprintf(stderr, "%d checks on %s, %d failed\n", report.checks(), device.info().name.c_str(),
               report.failures());
  return report.failures() == 0 && report.checks() > 0 ? 0 : 1;
}
