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

// An answer of a few sequences up to its data is not longer.
constexpr size_t kTypicalStart = 128;

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

// What answers say of themselves is written field by field: through generated messages a Decode of
// one row made seven allocations for 20 bytes.
void AppendTiming(int field, const StepTiming& timing, std::string* to) {
  std::string inner;
  AppendInteger(v1::Timing::kQueueNsFieldNumber, timing.queue_ns, &inner);
  AppendInteger(v1::Timing::kComputeNsFieldNumber, timing.compute_ns, &inner);
  AppendInteger(v1::Timing::kBatchRowsFieldNumber, timing.batch_rows, &inner);
  AppendFieldStart(field, inner.size(), to);
  to->append(inner);
}

// Its status is always there: code 0 is an answer too.
void AppendResult(const SequenceStep& sequence, std::string* to) {
  std::string status;
  if (!sequence.status.ok()) {
    v1::Status wire;
    ToWireStatus(sequence.status, &wire);
    status = wire.SerializeAsString();
  }
  std::string inner;
  AppendFieldStart(v1::SequenceResult::kStatusFieldNumber, status.size(), &inner);
  inner.append(status);
  AppendInteger(v1::SequenceResult::kLengthFieldNumber, sequence.length, &inner);
  AppendFieldStart(v1::DecodeResponse::kResultsFieldNumber, inner.size(), to);
  to->append(inner);
}

// The field `output` up to its data.
void AppendOutput(const AnswerRows& rows, int64_t count, std::string* to) {
  std::string shape;
  AppendVarint(static_cast<uint64_t>(count), &shape);
  AppendVarint(static_cast<uint64_t>(rows.d_model), &shape);
  std::string start;
  AppendInteger(v1::Tensor::kDtypeFieldNumber, WireDtype(rows.dtype), &start);
  AppendFieldStart(v1::Tensor::kShapeFieldNumber, shape.size(), &start);
  start.append(shape);
  const auto bytes = static_cast<uint64_t>(count * RowBytes(rows));
  if (bytes > 0) {
    AppendFieldStart(v1::Tensor::kDataFieldNumber, bytes, &start);
  }
  AppendFieldStart(kOutputField, start.size() + bytes, to);
  to->append(start);
}

// The answers up to their data.
std::string PrefillStart(const Step& step, const AnswerRows& rows, RowRange part) {
  std::string start;
  start.reserve(kTypicalStart);
  AppendInteger(v1::PrefillResponse::kOutputPositionFieldNumber, step.output_position + part.begin,
                &start);
  AppendInteger(v1::PrefillResponse::kLengthFieldNumber, step.sequences.front().length, &start);
  AppendTiming(v1::PrefillResponse::kTimingFieldNumber, step.timing, &start);
  AppendOutput(rows, part.count, &start);
  return start;
}

std::string DecodeStart(const Step& step, const AnswerRows& rows) {
  std::string start;
  start.reserve(kTypicalStart);
  for (const SequenceStep& sequence : step.sequences) {
    AppendResult(sequence, &start);
  }
  AppendTiming(v1::DecodeResponse::kTimingFieldNumber, step.timing, &start);
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
