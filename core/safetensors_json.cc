// Readers of a safetensors header and of an index of shards.
#include "core/safetensors_json.h"

#include <limits>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/json_events.h"
#include "core/text.h"

namespace attnd {
namespace {

std::string TooMany() { return "has more than " + std::to_string(kMaxSafetensors) + " tensors"; }

// {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//  "__metadata__": {"TEXT": "TEXT", ...}}
class HeaderReader final : public JsonEvents {
 public:
  std::vector<SafetensorsEntry> TakeEntries() { return std::move(entries_); }

 protected:
  bool OnStart(bool array) override {
    if (depth() == 0) {
      return !array || Fail("has a header that is a list; expected a map of tensors");
    }
    if (depth() == 1) {
      return !array || Unexpected("a list");
    }
    if (depth() == 2 && array && !in_metadata_ && (field_ == kShape || field_ == kOffsets)) {
      return true;
    }
    return Unexpected(array ? "a list" : "a map");
  }

  bool OnEnd() override {
    if (depth() == 1 && !in_metadata_) {
      return FinishTensor();
    }
    return true;
  }

  bool OnKey(std::string& name) override {
    if (depth() == 1) {
      return StartTensor(name);
    }
    if (in_metadata_) {
      return true;
    }
    for (const Field field : {kDType, kShape, kOffsets}) {
      if (name == FieldName(field)) {
        field_ = field;
        if ((seen_ & field) != 0) {
          return Fail("tensor " + Quoted(entry_.name) + " has '" + name + "' twice");
        }
        seen_ |= field;
        return true;
      }
    }
    return Fail("tensor " + Quoted(entry_.name) + " has a field " + Quoted(name) +
                "; expected dtype, shape and data_offsets alone");
  }

  bool OnString(std::string& value) override {
    if (depth() == 2 && in_metadata_) {
      return true;
    }
    if (depth() == 2 && field_ == kDType) {
      entry_.dtype = std::move(value);
      return true;
    }
    return Unexpected(Quoted(value));
  }

  bool OnNatural(uint64_t value) override {
    // Numbers stand in the lists of shape and data_offsets alone: there the depth is 3.
    if (depth() != 3 || value > std::numeric_limits<int64_t>::max()) {
      return Unexpected(std::to_string(value));
    }
    std::vector<int64_t>& numbers = field_ == kShape ? entry_.shape : offsets_;
    numbers.push_back(static_cast<int64_t>(value));
    const size_t most = field_ == kShape ? kMaxRank : 2;
    return numbers.size() <= most || Unexpected("a longer list");
  }

  bool OnScalar(const std::string& what) override { return Unexpected(what); }

 private:
  enum Field : unsigned { kDType = 1, kShape = 2, kOffsets = 4 };
  static constexpr size_t kMaxRank = 64;

  static const char* FieldName(Field field) {
    return field == kDType ? "dtype" : field == kShape ? "shape" : "data_offsets";
  }

  bool StartTensor(std::string& name) {
    if (names_.size() == kMaxSafetensors) {
      return Fail(TooMany());
    }
    if (!names_.insert(name).second) {
      return Fail("tensor " + Quoted(name) + " stands there twice");
    }
    in_metadata_ = name == "__metadata__";
    entry_ = SafetensorsEntry();
    entry_.name = std::move(name);
    offsets_.clear();
    seen_ = 0;
    return true;
  }

  bool FinishTensor() {
    for (const Field field : {kDType, kShape, kOffsets}) {
      if ((seen_ & field) == 0) {
        return Fail("tensor " + Quoted(entry_.name) + " has no '" + FieldName(field) + "'");
      }
    }
    if (offsets_.size() != 2) {
      return Fail("tensor " + Quoted(entry_.name) + " has " + std::to_string(offsets_.size()) +
                  " data_offsets; expected two");
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    entries_.push_back(std::move(entry_));
    return true;
  }

  bool Unexpected(const std::string& what) {
    const std::string got = Printable(what, 60);
    if (depth() == 0) {
      return Fail("has a header that is " + got + "; expected a map of tensors");
    }
    if (in_metadata_) {
      return Fail("has " + got + " in '__metadata__'; expected a map of texts");
    }
    const std::string tensor = "tensor " + Quoted(entry_.name);
    if (depth() == 1) {
      return Fail(tensor + " is " + got + "; expected a map of dtype, shape and data_offsets");
    }
    const char* expected = field_ == kDType   ? "; expected a text"
                           : field_ == kShape ? "; expected a list of whole numbers from 0"
                                              : "; expected two whole numbers from 0";
    return Fail(tensor + " has " + got + " in '" + FieldName(field_) + "'" + expected);
  }

  std::vector<SafetensorsEntry> entries_;
  std::unordered_set<std::string> names_;
  // Of the tensor that is being read.
  SafetensorsEntry entry_;
  std::vector<int64_t> offsets_;
  Field field_ = kDType;
  unsigned seen_ = 0;
  bool in_metadata_ = false;
};

// {"weight_map": {"TENSOR": "FILE", ...}, ...}; everything else is passed over.
class IndexReader final : public JsonEvents {
 public:
  std::unordered_map<std::string, std::string> TakeMap() { return std::move(map_); }
  bool found() const { return found_; }

 protected:
  bool OnStart(bool array) override {
    if (depth() == 0) {
      return !array || Fail("is a list; expected a map with 'weight_map'");
    }
    return !in_map_ || (depth() == 1 && !array) || Unexpected(array ? "a list" : "a map");
  }
  bool OnEnd() override { return true; }
  bool OnKey(std::string& name) override {
    if (depth() == 1) {
      in_map_ = name == "weight_map";
      if (in_map_ && found_) {
        return Fail("has 'weight_map' twice");
      }
      found_ = found_ || in_map_;
    } else if (in_map_) {
      if (map_.size() == kMaxSafetensors) {
        return Fail(TooMany());
      }
      tensor_ = name;
      if (!map_.try_emplace(name).second) {
        return Fail("tensor " + Quoted(name) + " stands in 'weight_map' twice");
      }
    }
    return true;
  }
  bool OnString(std::string& value) override {
    if (in_map_ && depth() == 2) {
      map_[tensor_] = std::move(value);
      return true;
    }
    return OnScalar(Quoted(value));
  }
  bool OnNatural(uint64_t value) override { return OnScalar(std::to_string(value)); }
  bool OnScalar(const std::string& what) override {
    if (depth() == 0) {
      return Fail("is " + Printable(what, 60) + "; expected a map with 'weight_map'");
    }
    return !in_map_ || Unexpected(what);
  }

 private:
  bool Unexpected(const std::string& what) {
    return Fail((depth() == 1 ? std::string("'weight_map'") : "tensor " + Quoted(tensor_)) +
                " is " + Printable(what, 60) + "; expected " +
                (depth() == 1 ? "a map of tensors to files" : "the name of a file"));
  }

  std::unordered_map<std::string, std::string> map_;
  std::string tensor_;
  bool in_map_ = false;
  bool found_ = false;
};

}  // namespace

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsJson(std::string_view header) {
  if (header.empty() || header.front() != '{') {
    return MakeError(Reason::kBadArgument, "has a header that does not begin with '{'");
  }
  HeaderReader reader;
  if (absl::Status status = reader.Read(header); !status.ok()) {
    return status;
  }
  return reader.TakeEntries();
}

absl::StatusOr<std::unordered_map<std::string, std::string>> ParseShardIndex(
    std::string_view text) {
  IndexReader reader;
  if (absl::Status status = reader.Read(text); !status.ok()) {
    return status;
  }
  if (!reader.found()) {
    return MakeError(Reason::kBadArgument, "has no 'weight_map'; expected an index of shards");
  }
  return reader.TakeMap();
}

}  // namespace attnd
