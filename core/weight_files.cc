// Finding and checking the tensors of a plan in safetensors files.
#include "core/weight_files.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/error.h"
#include "core/safetensors.h"
#include "core/safetensors_json.h"
#include "core/text.h"
#include "kernels/check.h"

namespace attnd {
namespace {

using ShardMap = std::unordered_map<std::string, std::string>;  // tensor to path

class FileWeights final : public WeightSource {
 public:
  explicit FileWeights(const std::string& path) : description_(path) {}

  absl::StatusOr<TensorView> Tensor(const TensorSpec& spec) override {
    const auto found = tensors_.find(spec.name);
    Check(found != tensors_.end(), "only tensors of the plan are asked for");
    Check(found->second.out == spec.out && found->second.in == spec.in, "of the plan's shape");
    return found->second;
  }
  void Release() override {}
  const std::string& description() const override { return description_; }
  DType dtype() const override {
    return static_cast<DType>(std::max_element(by_dtype_.begin(), by_dtype_.end()) -
                              by_dtype_.begin());
  }

  // The file at `path`, opened at the first call.
  absl::StatusOr<const SafetensorsFile*> File(const std::string& path) {
    std::unique_ptr<SafetensorsFile>& file = files_[path];
    if (file == nullptr) {
      absl::StatusOr<std::unique_ptr<SafetensorsFile>> opened = SafetensorsFile::Open(path);
      if (!opened.ok()) {
        return opened.status();
      }
      file = *std::move(opened);
    }
    return file.get();
  }

  void Add(const std::string& name, const TensorView& view) {
    tensors_[name] = view;
    ++by_dtype_[static_cast<size_t>(view.dtype)];
  }

 private:
  std::string description_;
  std::unordered_map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  std::unordered_map<std::string, TensorView> tensors_;
  std::array<int64_t, 3> by_dtype_ = {};  // tensors, by DType
};

absl::StatusOr<TensorView> CheckedView(const SafetensorsFile& file, const TensorSpec& spec) {
  const std::string tensor = "tensor '" + spec.name + "' ";
  const SafetensorsEntry* entry = file.Find(spec.name);
  if (entry == nullptr) {
    return FileError(file.path(), tensor + absl::StrFormat("is missing; expected it with shape "
                                                           "[%d, %d]",
                                                           spec.out, spec.in));
  }
  const std::optional<DType> dtype = DTypeFromSafetensors(entry->dtype);
  if (!dtype) {
    return FileError(file.path(),
                     tensor + "has dtype " + Quoted(entry->dtype) + "; expected F32, BF16 or F16");
  }
  if (entry->shape != std::vector<int64_t>{spec.out, spec.in}) {
    return FileError(file.path(), tensor + absl::StrFormat("has shape [%s]; expected [%d, %d]",
                                                           absl::StrJoin(entry->shape, ", "),
                                                           spec.out, spec.in));
  }
  // The shape is the plan's by now, so that the product cannot overflow.
  const int64_t bytes = spec.out * spec.in * DTypeSize(*dtype);
  if (entry->end - entry->begin != bytes) {
    return FileError(file.path(), tensor + absl::StrFormat("has %d bytes; expected %d",
                                                           entry->end - entry->begin, bytes));
  }
  return TensorView{file.data(*entry), *dtype, spec.out, spec.in};
}

// A shard lies in the index's directory or below: no absolute path and no "..".
bool IsInside(const std::string& name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != std::string::npos) {
    return false;
  }
  return ("/" + name + "/").find("/../") == std::string::npos;
}

absl::StatusOr<ShardMap> ReadIndex(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxSafetensorsHeader);
  if (!text.ok()) {
    return text.status();
  }
  absl::StatusOr<ShardMap> shards = ParseShardIndex(*text);
  if (!shards.ok()) {
    return FileError(path, std::string(shards.status().message()));
  }
  return shards;
}

// The path of the shard that holds the tensor.
absl::StatusOr<std::string> ShardPath(const std::string& index, const ShardMap& shards,
                                      const std::string& tensor) {
  const auto shard = shards.find(tensor);
  if (shard == shards.end()) {
    return FileError(index, "tensor '" + tensor + "' is missing in 'weight_map'");
  }
  if (!IsInside(shard->second)) {
    return FileError(index, "tensor '" + tensor + "' is said to be in " + Quoted(shard->second) +
                                "; expected a file in the index's directory");
  }
  return index.substr(0, index.rfind('/') + 1) + shard->second;  // npos + 1 is 0
}

bool IsIndex(const std::string& path) {
  constexpr std::string_view kJson = ".json";
  return path.size() > kJson.size() &&
         path.compare(path.size() - kJson.size(), kJson.size(), kJson) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeightFiles(const std::string& path,
                                                              const LayerPlan& plan) {
  ShardMap shards;
  const bool is_index = IsIndex(path);
  if (is_index) {
    absl::StatusOr<ShardMap> read = ReadIndex(path);
    if (!read.ok()) {
      return read.status();
    }
    shards = *std::move(read);
  }
  auto weights = std::make_unique<FileWeights>(path);
  for (int64_t layer = 0; layer < plan.num_layers(); ++layer) {
    for (const TensorSpec& spec : LayerTensors(plan, layer)) {
      absl::StatusOr<std::string> file_path =
          is_index ? ShardPath(path, shards, spec.name) : absl::StatusOr<std::string>(path);
      if (!file_path.ok()) {
        return file_path.status();
      }
      const absl::StatusOr<const SafetensorsFile*> file = weights->File(*file_path);
      if (!file.ok()) {
        return file.status();
      }
      const absl::StatusOr<TensorView> view = CheckedView(**file, spec);
      if (!view.ok()) {
        return view.status();
      }
      weights->Add(spec.name, *view);
    }
  }
  return std::unique_ptr<WeightSource>(std::move(weights));
}

}  // namespace attnd
