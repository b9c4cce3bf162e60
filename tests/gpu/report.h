// What was checked, and how it came out: a line of JSON each, for the driver.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace attnd::gpu {

class Report {
 public:
  // Lines go to `path` besides stdout; empty: to stdout alone.
  explicit Report(const std::string& path);
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  // NaN and infinity first (none may be where `want` has none), then |got - want| <= tolerance
  // |want| (Frobenius) and no element off by more than 100 tolerance max|want|.
  void Near(const std::string& suite, const std::string& name, const std::vector<float>& got,
            const std::vector<double>& want, double tolerance);
  void Holds(const std::string& suite, const std::string& name, bool holds,
             const std::string& detail = "");
  // Bit for bit; NaN equals itself.
  template <typename T>
  void Same(const std::string& suite, const std::string& name, const std::vector<T>& got,
            const std::vector<T>& want) {
    Same(suite, name, got.data(), got.size() * sizeof(T), want.data(), want.size() * sizeof(T),
         sizeof(T));
  }

  int checks() const { return checks_; }
  int failures() const { return failures_; }

 private:
  void Same(const std::string& suite, const std::string& name, const void* got, size_t got_bytes,
            const void* want, size_t want_bytes, size_t element);
  void Line(const std::string& suite, const std::string& name, bool ok, const std::string& rest);

  std::FILE* file_ = nullptr;
  int checks_ = 0;
  int failures_ = 0;
};

}  // namespace attnd::gpu
