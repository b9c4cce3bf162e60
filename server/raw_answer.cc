// The answers of steps as bytes.
#include "server/raw_answer.h"

#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attnd/v1/attnd.pb.h"
#include "kernels/convert.h"
#include "server/status_map.h"
#include "server/validate.h"
#include "server/varint.h"

namespace attnd::server {
namespace {

static_assert(std::endian::native == std::endian::little, "rows go onto the wire as they are");

constexpr int kOutputField = 15;
static_assert(v1::PrefillResponse::kOutputFieldNumber == kOutputField);
static_assert(v1::DecodeResponse::kOutputFieldNumber == kOutputField);

template <typename T>
void Delete(void* owner) {
  delete static_cast<T*>(owner);
}

// Bytes of an answer; `owner` is deleted when the last reference to them goes.
template <typename T>
grpc::Slice Borrow(std::unique_ptr<T> owner, void* bytes, int64_t size) {
  return size == 0 ? grpc::Slice()
                   : grpc::Slice(bytes, static_cast<size_t>(size), &Delete<T>, owner.release());
}

int64_t RowBytes(const AnswerRows& rows) { return rows.d_model * DTypeSize(rows.dtype); }

void WriteTiming(const StepTiming& timing, v1::Timing* wire) {
  wire->set_queue_ns(timing.queue_ns);
  wire->set_compute_ns(timing.compute_ns);
  wire->set_batch_rows(static_cast<int32_t>(timing.batch_rows));
}

// The field `output` up to its data.
void AppendOutput(const AnswerRows& rows, int64_t count, std::string* to) {
  v1::Tensor tensor;
  tensor.set_dtype(WireDtype(rows.dtype));
  tensor.add_shape(count);
  tensor.add_shape(rows.d_model);
  std::string start = tensor.SerializeAsString();
  const auto bytes = static_cast<uint64_t>(count * RowBytes(rows));
  if (bytes > 0) {
    AppendFieldStart(v1::Tensor::kDataFieldNumber, bytes, &start);
  }
  AppendFieldStart(kOutputField, start.size() + bytes, to);
  to->append(start);
}

// The answers up to their data.
std::string PrefillStart(const Step& step, const AnswerRows& rows, RowRange part) {
  v1::PrefillResponse response;
  response.set_output_position(step.output_position + part.begin);
  response.set_length(step.sequences.front().length);
  WriteTiming(step.timing, response.mutable_timing());
  std::string start = response.SerializeAsString();
  AppendOutput(rows, part.count, &start);
  return start;
}

std::string DecodeStart(const Step& step, const AnswerRows& rows) {
  v1::DecodeResponse response;
  for (const SequenceStep& sequence : step.sequences) {
    v1::SequenceResult* result = response.add_results();
    ToWireStatus(sequence.status, result->mutable_status());
    result->set_length(sequence.length);
  }
  WriteTiming(step.timing, response.mutable_timing());
  std::string start = response.SerializeAsString();
  AppendOutput(rows, rows.count, &start);
  return start;
}

grpc::ByteBuffer Join(const std::string& start, const AnswerRows& rows, RowRange part) {
  const auto begin = static_cast<size_t>(part.begin * RowBytes(rows));
  const auto size = static_cast<size_t>(part.count * RowBytes(rows));
  if (size == 0) {
    const grpc::Slice slice(start);
    return grpc::ByteBuffer(&slice, 1);
  }
  const grpc::Slice slices[] = {grpc::Slice(start), rows.bytes.sub(begin, begin + size)};
  return grpc::ByteBuffer(slices, 2);
}

std::string StreamStart(uint64_t step_id, const absl::Status& status, bool more) {
  v1::StepResponse response;
  response.set_step_id(step_id);
  ToWireStatus(status, response.mutable_status());  // always there: code 0 is an answer too
  response.set_more(more);
  return response.SerializeAsString();
}

// An answer as the field `field` of a StepResponse.
StreamAnswer JoinStream(uint64_t step_id, bool more, int field, const std::string& inner,
                        const AnswerRows& rows, RowRange part) {
  std::string start = StreamStart(step_id, absl::OkStatus(), more);
  AppendFieldStart(field, inner.size() + static_cast<uint64_t>(part.count * RowBytes(rows)),
                   &start);
  start.append(inner);
  return {Join(start, rows, part), more};
}

}  // namespace

AnswerRows TakeRows(Step* step, int64_t d_model, DType dtype) {
  const auto elements = static_cast<int64_t>(step->output.size());
  const int64_t bytes = elements * DTypeSize(dtype);
  AnswerRows rows{dtype, d_model, elements / d_model, {}};
  if (dtype == DType::kF32) {
    auto owner = std::make_unique<std::vector<float>>(std::move(step->output));
    float* data = owner->data();
    rows.bytes = Borrow(std::move(owner), data, bytes);
  } else {
    using Halves = std::unique_ptr<uint16_t[]>;
    auto owner = std::make_unique<Halves>(
        std::make_unique_for_overwrite<uint16_t[]>(static_cast<size_t>(elements)));
    uint16_t* data = owner->get();
    kernels::FromFloat(dtype, step->output.data(), elements, data);
    rows.bytes = Borrow(std::move(owner), data, bytes);
  }
  step->output.clear();
  return rows;
}

grpc::ByteBuffer EncodePrefill(const Step& step, const AnswerRows& rows) {
  const RowRange all{0, rows.count};
  return Join(PrefillStart(step, rows, all), rows, all);
}

grpc::ByteBuffer EncodeDecode(const Step& step, const AnswerRows& rows) {
  return Join(DecodeStart(step, rows), rows, {0, rows.count});
}

StreamAnswer EncodePrefillPart(uint64_t step_id, const Step& step, const AnswerRows& rows,
                               RowRange part) {
  return JoinStream(step_id, part.begin + part.count < rows.count,
                    v1::StepResponse::kPrefillFieldNumber, PrefillStart(step, rows, part), rows,
                    part);
}

StreamAnswer EncodeStreamDecode(uint64_t step_id, const Step& step, const AnswerRows& rows) {
  return JoinStream(step_id, false, v1::StepResponse::kDecodeFieldNumber, DecodeStart(step, rows),
                    rows, {0, rows.count});
}

StreamAnswer EncodeFailure(uint64_t step_id, const absl::Status& status) {
  return {Join(StreamStart(step_id, status, false), {}, {}), false};
}

}  // namespace attnd::server
