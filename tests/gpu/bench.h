// Timing on a card, and a line of JSON for each row of the benchmark.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "tests/gpu/device.h"

namespace attnd::gpu {

// What the card reached in the same run.
struct Ceilings {
  double copy_bytes_per_second = 0;  // read and written
  double bf16_flop_per_second = 0;
};

class Bench {
 public:
  Bench(Device& device, const std::string& out, double seconds);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Device& device() { return device_; }
  const Ceilings& ceilings() const { return ceilings_; }

  // Median of several runs of `work` on the stream, in seconds, each of as many calls as take a
  // millisecond or so.
  double Seconds(const std::function<void()>& work);

  void MeasureCeilings();

  // A row: `value` in `unit`, and `share` of its ceiling; `target` says what is asked.
  void Row(const std::string& name, double seconds, double value, const std::string& unit,
           double share, const std::string& target, bool met);
  void Row(const std::string& name, double seconds, double value, const std::string& unit,
           double share);

  // False once the time given to the benchmark is over: rows that are left are not begun.
  bool HasTime(const std::string& next);

 private:
  void Line(const std::string& text);

  struct Events;
  Device& device_;
  std::unique_ptr<Events> events_;
  std::FILE* file_ = nullptr;
  Ceilings ceilings_;
  double deadline_;
};

}  // namespace attnd::gpu
