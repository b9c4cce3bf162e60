// Files named by the user: read whole when small, mapped when large. Only regular files, so that
// a pipe or a device never blocks the start.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnd {

// The contents of a file of at most `max_bytes`. Errors are one line and name the file.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);

// A file mapped for reading, as long as it was when it was opened. A file that is cut while it is
// mapped ends the process (SIGBUS), as with every user of mmap.
class MappedFile {
 public:
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  std::span<const uint8_t> bytes_;
};

// "FILE: MESSAGE" with the reason BAD_ARGUMENT.
absl::Status FileError(const std::string& path, const std::string& message);

}  // namespace attnd
