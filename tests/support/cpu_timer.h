// How long a refusal may take. CPU time, so that a busy machine fails no test.
#pragma once

#include <ctime>

namespace attnd {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr double kRefusalSeconds = 10;  // instrumented code is about three times slower
#else
inline constexpr double kRefusalSeconds = 1;
#endif

// CPU seconds of this process since the timer was made.
class CpuTimer {
 public:
  double Seconds() const { return static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC; }

 private:
  std::clock_t start_ = std::clock();
};

}  // namespace attnd
