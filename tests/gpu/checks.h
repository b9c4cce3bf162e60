// The checks, a suite each.
#pragma once

#include <cstdint>
#include <string>

#include "tests/gpu/device.h"
#include "tests/gpu/report.h"

namespace attnd::gpu {

enum class Size : uint8_t {
  kTiny,   // the emulated device: seconds a suite
  kSmall,  // under compute-sanitizer
  kFull,
};

void CheckFragments(Device& device, Report& report);
void CheckElementwise(Device& device, Report& report, Size size);
void CheckGqa(Device& device, Report& report, Size size, uint64_t seed);
void CheckLatent(Device& device, Report& report, Size size, uint64_t seed);
void CheckPlain(Device& device, Report& report, Size size, uint64_t seed);
// `folder` is what flatten.py made of tests/golden.
void CheckGolden(Device& device, Report& report, Size size, const std::string& folder);

}  // namespace attnd::gpu
