#include "tests/core/soak_ledger.h"

#include <gtest/gtest.h>

namespace attnd {

void SoakLedger::Count(const std::string& name, int64_t n) {
  std::lock_guard lock(mutex_);
  counts_[name] += n;
}

int64_t SoakLedger::count(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto it = counts_.find(name);
  return it == counts_.end() ? 0 : it->second;
}

void SoakLedger::Find(const std::string& kind, const std::string& text) {
  Count(kind);
  if (count(kind) <= 10) {
    ADD_FAILURE() << kind << ": " << text;
  }
  failed_ = true;
}

std::string SoakLedger::Table() const {
  std::lock_guard lock(mutex_);
  std::string table;
  for (const auto& [name, n] : counts_) {
    table += "  " + name + std::string(name.size() < 28 ? 28 - name.size() : 1, ' ') + " " +
             std::to_string(n) + "\n";
  }
  return table;
}

}  // namespace attnd
