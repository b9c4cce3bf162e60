// Element types of weights, caches and the wire, and their names in flags and messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace attnd {

// kInt8 and kFp8E4M3 are for caches alone: they are nothing without the scale of their row
// (cache_layout.h).
enum class DType : uint8_t { kF32, kBF16, kF16, kInt8, kFp8E4M3 };

constexpr bool HasRowScales(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kFp8E4M3;
}

// Bytes of one element.
constexpr int64_t DTypeSize(DType dtype) {
  return dtype == DType::kF32 ? 4 : HasRowScales(dtype) ? 1 : 2;
}

// "f32", "bf16", "f16", "int8", "fp8_e4m3": as flags, logs and error messages write it.
constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kInt8:
      return "int8";
    case DType::kFp8E4M3:
      return "fp8_e4m3";
  }
  return "?";
}

constexpr std::optional<DType> DTypeFromName(std::string_view name) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kFp8E4M3}) {
    if (name == DTypeName(dtype)) {
      return dtype;
    }
  }
  return std::nullopt;
}

}  // namespace attnd
