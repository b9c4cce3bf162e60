// Between the wire's bytes and core's steps.
#include "server/wire.h"

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "kernels/convert.h"
#include "server/status_map.h"
#include "server/validate.h"

namespace attnd::server {
namespace {

void WriteTiming(const StepTiming& timing, v1::Timing* wire) {
  wire->set_queue_ns(timing.queue_ns);
  wire->set_compute_ns(timing.compute_ns);
  wire->set_batch_rows(static_cast<int32_t>(timing.batch_rows));
}

void WriteTimestamp(int64_t wall_ns, google::protobuf::Timestamp* timestamp) {
  timestamp->set_seconds(wall_ns / 1'000'000'000);
  timestamp->set_nanos(static_cast<int32_t>(wall_ns % 1'000'000'000));
}

}  // namespace

void ReadHidden(const v1::Tensor& tensor, Step* step) {
  const DType dtype = *HiddenDtype(tensor.dtype());
  const int64_t d_model = tensor.shape(1);
  step->hidden.resize(static_cast<size_t>(tensor.shape(0) * d_model));
  const char* source = tensor.data().data();
  float* target = step->hidden.data();
  for (size_t i = 0; i < step->sequences.size(); ++i) {
    SequenceStep& sequence = step->sequences[i];
    const int64_t elements = sequence.rows * d_model;
    if (!kernels::ToFloat(dtype, source, elements, target) && sequence.status.ok()) {
      const std::string which =
          step->kind == StepKind::kDecode ? absl::StrCat(" in the rows of sequences[", i, "]") : "";
      sequence.status = MakeError(
          Reason::kNotFinite,
          absl::StrCat("hidden.data has a NaN or an infinity", which, "; expected finite values"));
    }
    source += elements * DTypeSize(dtype);
    target += elements;
  }
}

void WriteTensor(const std::vector<float>& values, int64_t begin, int64_t rows, int64_t d_model,
                 DType dtype, v1::Tensor* tensor) {
  tensor->set_dtype(WireDtype(dtype));
  tensor->add_shape(rows);
  tensor->add_shape(d_model);
  const int64_t elements = rows * d_model;
  std::string* data = tensor->mutable_data();
  data->resize(static_cast<size_t>(elements * DTypeSize(dtype)));
  // An answer beyond f16's range is sent as infinity: the client chose the type.
  kernels::FromFloat(dtype, values.data() + begin * d_model, elements, data->data());
}

void WritePrefill(const Step& step, int64_t d_model, DType dtype, v1::PrefillResponse* response) {
  WritePrefillPart(step, d_model, dtype, 0, static_cast<int64_t>(step.output.size()) / d_model,
                   response);
}

void WritePrefillPart(const Step& step, int64_t d_model, DType dtype, int64_t begin, int64_t rows,
                      v1::PrefillResponse* response) {
  response->set_output_position(step.output_position + begin);
  response->set_length(step.sequences.front().length);
  WriteTiming(step.timing, response->mutable_timing());
  WriteTensor(step.output, begin, rows, d_model, dtype, response->mutable_output());
}

void WriteDecode(const Step& step, int64_t d_model, DType dtype, v1::DecodeResponse* response) {
  for (const SequenceStep& sequence : step.sequences) {
    v1::SequenceResult* result = response->add_results();
    ToWireStatus(sequence.status, result->mutable_status());
    result->set_length(sequence.length);
  }
  WriteTiming(step.timing, response->mutable_timing());
  WriteTensor(step.output, 0, static_cast<int64_t>(step.output.size()) / d_model, d_model, dtype,
              response->mutable_output());
}

void WriteSession(const SessionInfo& info, v1::Session* session) {
  session->set_session_id(info.id);
  session->set_prefix_length(info.prefix_length);
  session->set_max_tokens(info.max_tokens);
  session->mutable_layer_lengths()->Add(info.layer_lengths.begin(), info.layer_lengths.end());
  session->set_rewind_floor(info.rewind_floor);
  session->set_cache_bytes(info.cache_bytes);
  session->set_reserved_bytes(info.reserved_bytes);
  WriteTimestamp(info.create_wall_ns, session->mutable_create_time());
  WriteTimestamp(info.expire_wall_ns, session->mutable_expire_time());
  session->set_affinity_key(info.affinity_key);
}

}  // namespace attnd::server
