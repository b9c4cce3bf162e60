// What the benchmarks' clients do with an error: one line, and the end.
#pragma once

#include <errno.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnd::bench {

[[noreturn]] inline void Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, status.ToString().c_str());
  std::exit(1);
}

inline void Must(const absl::Status& status) {
  if (!status.ok()) {
    Fail(status);
  }
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    Fail(value.status());
  }
  return *std::move(value);
}

}  // namespace attnd::bench
