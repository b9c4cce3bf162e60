// Between a session's state and the header of its export.
#include "server/session_header.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "server/validate.h"

namespace attnd::server {
namespace {

// A number of every layer: its array in the header, its place in the state.
struct LayerField {
  const char* name;
  google::protobuf::RepeatedField<int64_t>* (v1::SessionHeader::*mutable_array)();
  const google::protobuf::RepeatedField<int64_t>& (v1::SessionHeader::*array)() const;
  int64_t LayerState::*value;
};
using H = v1::SessionHeader;
const LayerField kLayerFields[] = {
    {"layer_lengths", &H::mutable_layer_lengths, &H::layer_lengths, &LayerState::length},
    {"first_kept", &H::mutable_first_kept, &H::first_kept, &LayerState::first},
    {"last_step_start", &H::mutable_last_step_start, &H::last_step_start,
     &LayerState::last_step_start},
    {"page_start", &H::mutable_page_start, &H::page_start, &LayerState::page_start},
    {"tail_start", &H::mutable_tail_start, &H::tail_start, &LayerState::tail_start},
    {"tail_end", &H::mutable_tail_end, &H::tail_end, &LayerState::tail_end},
    {"held_rows", &H::mutable_held_rows, &H::held_rows, &LayerState::held_rows},
};

absl::Status Mismatch(Reason reason, const char* field, const std::string& value,
                      const std::string& expected) {
  return MakeError(reason, absl::StrCat("header.", field, " is ", value, "; expected ", expected));
}

absl::Status CheckFormat(const v1::ModelInfo& model, const v1::SessionHeader& header) {
  if (header.format_version() != kSessionFormat) {
    return Mismatch(Reason::kFormatMismatch, "format_version",
                    absl::StrCat(header.format_version()), absl::StrCat(kSessionFormat));
  }
  if (header.model_fingerprint() != model.fingerprint()) {
    // A fingerprint has 37 characters; what else was sent is not repeated at length.
    return Mismatch(Reason::kModelMismatch, "model_fingerprint",
                    absl::StrCat("'", header.model_fingerprint().substr(0, 40), "'"),
                    absl::StrCat("'", model.fingerprint(), "', the model served here"));
  }
  if (header.cache_dtype() != model.cache_dtype()) {
    return Mismatch(Reason::kFormatMismatch, "cache_dtype", absl::StrCat(header.cache_dtype()),
                    v1::Dtype_Name(model.cache_dtype()));
  }
  if (header.page_tokens() != model.page_tokens()) {
    return Mismatch(Reason::kFormatMismatch, "page_tokens", absl::StrCat(header.page_tokens()),
                    absl::StrCat(model.page_tokens()));
  }
  for (const LayerField& field : kLayerFields) {
    const int values = (header.*field.array)().size();
    if (values != model.layers_size()) {
      return Mismatch(Reason::kFormatMismatch, field.name, absl::StrCat(values, " values"),
                      absl::StrCat(model.layers_size(), ", one a layer"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

v1::SessionHeader WriteHeader(const v1::ModelInfo& model, const SnapshotState& state,
                              int64_t data_bytes) {
  v1::SessionHeader header;
  header.set_format_version(kSessionFormat);
  header.set_model_fingerprint(model.fingerprint());
  header.set_cache_dtype(model.cache_dtype());
  header.set_page_tokens(model.page_tokens());
  header.set_prefix_length(state.spec.prefix_length);
  header.set_max_tokens(state.spec.max_tokens);
  header.mutable_idle_ttl()->set_seconds(state.spec.idle_ttl_ns / 1'000'000'000);
  header.mutable_idle_ttl()->set_nanos(
      static_cast<int32_t>(state.spec.idle_ttl_ns % 1'000'000'000));
  header.set_affinity_key(state.spec.affinity_key);
  header.set_session_id(state.spec.id);
  header.set_data_bytes(data_bytes);
  for (const LayerField& field : kLayerFields) {
    for (const LayerState& layer : state.layers) {
      (header.*field.mutable_array)()->Add(layer.*field.value);
    }
  }
  return header;
}

absl::StatusOr<SnapshotState> ReadHeader(const v1::ModelInfo& model,
                                         const v1::SessionHeader& header) {
  if (absl::Status status = CheckFormat(model, header); !status.ok()) {
    return status;
  }
  SnapshotState state;
  state.spec.id = header.session_id();
  state.spec.prefix_length = header.prefix_length();
  state.spec.max_tokens = header.max_tokens();
  state.spec.affinity_key = header.affinity_key();
  state.spec.idle_ttl_ns = -1;
  if (header.has_idle_ttl()) {
    const absl::StatusOr<int64_t> ttl = CheckDuration("header.idle_ttl", header.idle_ttl());
    if (!ttl.ok()) {
      return ttl.status();
    }
    state.spec.idle_ttl_ns = *ttl;
  }
  state.layers.resize(static_cast<size_t>(model.layers_size()));
  for (const LayerField& field : kLayerFields) {
    for (size_t layer = 0; layer < state.layers.size(); ++layer) {
      state.layers[layer].*field.value = (header.*field.array)()[static_cast<int>(layer)];
    }
  }
  return state;
}

}  // namespace attnd::server
