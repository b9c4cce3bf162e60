// The checks of a safetensors header that need the file, and the mapped file.
#include "core/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_format.h"
#include "core/error.h"
#include "core/safetensors_json.h"
#include "core/text.h"

namespace attnd {
namespace {

constexpr int64_t kLengthBytes = 8;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

absl::Status BadFile(const std::string& message) {
  return MakeError(Reason::kBadArgument, message);
}

// Moves the offsets from the data section to the file.
absl::Status PlaceEntries(int64_t data_begin, int64_t file_bytes,
                          std::vector<SafetensorsEntry>* entries) {
  const int64_t data_bytes = file_bytes - data_begin;
  for (SafetensorsEntry& entry : *entries) {
    if (entry.begin > entry.end || entry.end > data_bytes) {
      return BadFile(absl::StrFormat(
          "tensor %s has data_offsets [%d, %d]; expected begin <= end <= %d, the bytes of data in "
          "the file",
          Quoted(entry.name), entry.begin, entry.end, data_bytes));
    }
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  return absl::OkStatus();
}

absl::Status CheckNoOverlap(const std::vector<SafetensorsEntry>& entries) {
  std::vector<const SafetensorsEntry*> by_begin;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < entry.end) {
      by_begin.push_back(&entry);
    }
  }
  std::sort(
      by_begin.begin(), by_begin.end(),
      [](const SafetensorsEntry* a, const SafetensorsEntry* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < by_begin.size(); ++i) {
    if (by_begin[i]->begin < by_begin[i - 1]->end) {
      return BadFile("tensors " + Quoted(by_begin[i - 1]->name) + " and " +
                     Quoted(by_begin[i]->name) + " overlap; expected bytes of their own");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(
    std::span<const uint8_t> file) {
  const int64_t file_bytes = static_cast<int64_t>(file.size());
  if (file_bytes < kLengthBytes) {
    return BadFile(
        absl::StrFormat("has %d bytes; a safetensors file begins with 8 of length", file_bytes));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const uint64_t left = static_cast<uint64_t>(file_bytes - kLengthBytes);
  const uint64_t limit = std::min<uint64_t>(left, kMaxSafetensorsHeader);
  if (header_bytes > limit) {
    return BadFile(
        absl::StrFormat("has a header of %d bytes; expected at most %d", header_bytes, limit) +
        (limit == left ? ", what is left of the file" : ""));
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                                header_bytes);
  absl::StatusOr<std::vector<SafetensorsEntry>> entries = ParseSafetensorsJson(header);
  if (!entries.ok()) {
    return entries;
  }
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(header_bytes);
  if (absl::Status status = PlaceEntries(data_begin, file_bytes, &*entries); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckNoOverlap(*entries); !status.ok()) {
    return status;
  }
  return entries;
}

std::optional<DType> DTypeFromSafetensors(std::string_view name) {
  if (name == "F32") {
    return DType::kF32;
  }
  if (name == "BF16") {
    return DType::kBF16;
  }
  if (name == "F16") {
    return DType::kF16;
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<MappedFile>> mapped = MappedFile::Open(path);
  if (!mapped.ok()) {
    return mapped.status();
  }
  absl::StatusOr<std::vector<SafetensorsEntry>> entries =
      ParseSafetensorsHeader((*mapped)->bytes());
  if (!entries.ok()) {
    return FileError(path, std::string(entries.status().message()));
  }
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile());
  file->path_ = path;
  file->file_ = *std::move(mapped);
  file->entries_ = *std::move(entries);
  file->by_name_.reserve(file->entries_.size());
  for (size_t i = 0; i < file->entries_.size(); ++i) {
    file->by_name_.emplace(file->entries_[i].name, static_cast<int64_t>(i));
  }
  return file;
}

const SafetensorsEntry* SafetensorsFile::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

}  // namespace attnd
