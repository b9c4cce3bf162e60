#include "kernels/support_matrix.h"

#include <algorithm>

namespace attnd::kernels {
namespace {

bool Contains(const std::vector<DType>& dtypes, DType dtype) {
  return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
}

std::string Join(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) {
    joined += joined.empty() ? name : ", " + name;
  }
  return joined;
}

std::string Limit(int64_t limit) { return limit == 0 ? "any" : "up to " + std::to_string(limit); }

}  // namespace

const SupportRow& CudaSupport() {
  static const SupportRow row = {"cuda",
                                 {DType::kF32, DType::kBF16, DType::kF16},
                                 {DType::kF32, DType::kBF16, DType::kF16, DType::kFp8E4M3},
                                 DType::kF32,
                                 {"local", "global"},
                                 0,
                                 0};
  return row;
}

const std::vector<SupportRow>& SupportMatrix() {
  static const std::vector<SupportRow> rows = {
      {"cpu",
       {DType::kF32, DType::kBF16, DType::kF16},
       {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8},
       DType::kF32,
       {"local", "global"},
       0,
       0},
#ifdef ATTND_CUDA
      CudaSupport(),
#endif
  };
  return rows;
}

const SupportRow* FindDevice(const std::string& device) {
  for (const SupportRow& row : SupportMatrix()) {
    if (device == row.device) {
      return &row;
    }
  }
  return nullptr;
}

std::string DTypeList(const std::vector<DType>& dtypes) {
  std::vector<std::string> names;
  for (const DType dtype : dtypes) {
    names.emplace_back(DTypeName(dtype));
  }
  return Join(names);
}

std::string Unsupported(const std::string& device, DType weight_dtype, DType cache_dtype) {
  const SupportRow* row = FindDevice(device);
  if (row == nullptr) {
    std::vector<std::string> devices;
    for (const SupportRow& known : SupportMatrix()) {
      devices.emplace_back(known.device);
    }
    return "device " + device + " is not in this build; supported: " + Join(devices);
  }
  if (!Contains(row->weight_dtypes, weight_dtype)) {
    return std::string("weight dtype ") + DTypeName(weight_dtype) + " is not supported on " +
           device + "; supported: " + DTypeList(row->weight_dtypes);
  }
  if (!Contains(row->cache_dtypes, cache_dtype)) {
    return std::string("cache dtype ") + DTypeName(cache_dtype) + " is not supported on " + device +
           "; supported: " + DTypeList(row->cache_dtypes);
  }
  return "";
}

std::string SupportMatrixMarkdown() {
  std::string table =
      "| device | weights | cache | compute | layers | group | widths |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const SupportRow& row : SupportMatrix()) {
    const std::vector<std::string> kinds(row.layer_kinds.begin(), row.layer_kinds.end());
    table += std::string("| ") + row.device + " | " + DTypeList(row.weight_dtypes) + " | " +
             DTypeList(row.cache_dtypes) + " | " + DTypeName(row.compute_dtype) + " | " +
             Join(kinds) + " | " + Limit(row.max_group) + " | " + Limit(row.max_width) + " |\n";
  }
  return table;
}

}  // namespace attnd::kernels
