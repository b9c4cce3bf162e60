// Safetensors files: an eight-byte header length, a JSON header, the tensors' bytes. The header
// is hostile until checked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "core/file.h"
#include "kernels/dtype.h"

namespace attnd {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "F32", as the file says it
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes of the file, checked: 0 <= begin <= end <= the file's size
  int64_t end = 0;
};

// Larger headers, and more tensors in one file or index, are refused: both limits are near twice
// what the largest published model would need in a single file (140,000 tensors of 130 bytes of
// header), and a hostile file at both of them is read in 0.6 s.
inline constexpr int64_t kMaxSafetensorsHeader = int64_t{32} << 20;
inline constexpr int64_t kMaxSafetensors = 250'000;

// The entries of `file` (all its bytes) in the header's order, without "__metadata__". Checked of
// every tensor: the three fields, their types, that the name is unique, and that the bytes lie in
// the file and overlap no other tensor's. Not checked: that dtype and shape fit the bytes, as only
// the tensors that are read need that. Errors are one line and name the tensor. A pure function.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::span<const uint8_t> file);

// Ours of a safetensors dtype: F32, BF16 or F16.
std::optional<DType> DTypeFromSafetensors(std::string_view name);

// A mapped file whose header has been checked.
class SafetensorsFile {
 public:
  // Errors are one line and name the file and, where it is one's fault, the tensor.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  // Null when the file has no tensor of that name.
  const SafetensorsEntry* Find(const std::string& name) const;
  const uint8_t* data(const SafetensorsEntry& entry) const {
    return file_->bytes().data() + entry.begin;
  }

 private:
  SafetensorsFile() = default;

  std::string path_;
  std::unique_ptr<MappedFile> file_;
  std::vector<SafetensorsEntry> entries_;
  std::unordered_map<std::string_view, int64_t> by_name_;  // into entries_, whose names it views
};

}  // namespace attnd
