// What a soak of the engine came to: counts by name, and findings, which fail the test.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "core/error.h"

namespace attnd {

// What came of it all, of all threads.
class SoakLedger {
 public:
  void Count(const std::string& name, int64_t n = 1);
  int64_t count(const std::string& name) const;
  void Refused(Reason reason) { Count(std::string("refused: ") + ReasonName(reason)); }
  // Something that must not happen: the test fails.
  void Find(const std::string& kind, const std::string& text);
  bool failed() const { return failed_; }
  // A line per count.
  std::string Table() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> counts_;
  std::atomic<bool> failed_{false};
};

}  // namespace attnd
