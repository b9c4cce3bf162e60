#include "client/cpp/session.h"

#include <algorithm>
#include <utility>

#include "client/cpp/client.h"
#include "client/cpp/connection.h"
#include "client/cpp/error.h"
#include "client/cpp/tensor.h"
#include "client/cpp/unary.h"

namespace attnd::client {
namespace {

v1::OutputRows ToWire(OutputRows rows) {
  switch (rows) {
    case OutputRows::kAll:
      return v1::OUTPUT_ROWS_ALL;
    case OutputRows::kLast:
      return v1::OUTPUT_ROWS_LAST;
    case OutputRows::kNone:
      return v1::OUTPUT_ROWS_NONE;
  }
  return v1::OUTPUT_ROWS_UNSPECIFIED;
}

}  // namespace

void Join(PrefillResult part, PrefillResult* whole) {
  if (whole->output.empty()) {
    whole->output_position = part.output_position;
    whole->output = std::move(part.output);
  } else {
    whole->output.insert(whole->output.end(), part.output.begin(), part.output.end());
  }
  whole->timing.queue_ns += part.timing.queue_ns;
  whole->timing.compute_ns += part.timing.compute_ns;
  whole->timing.batch_rows = part.timing.batch_rows;
}

Session::Session(std::shared_ptr<Connection> connection, const v1::Session& session,
                 int64_t d_model, int64_t message_rows)
    : connection_(std::move(connection)), d_model_(d_model), message_rows_(message_rows) {
  Adopt(session);
}

void Session::Adopt(const v1::Session& session) {
  id_ = session.session_id();
  prefix_length_ = session.prefix_length();
  layers_.assign(static_cast<size_t>(session.layer_lengths_size()), Layer());
  for (int i = 0; i < session.layer_lengths_size(); ++i) {
    layers_[static_cast<size_t>(i)].length = session.layer_lengths(i);
  }
}

int64_t Session::length(int64_t layer) const {
  return layer >= 0 && layer < num_layers() ? layers_[static_cast<size_t>(layer)].length : 0;
}

absl::Status Session::CheckRows(int64_t layer, std::span<const float> hidden) const {
  if (layer < 0 || layer >= num_layers()) {
    return ToStatus({absl::StatusCode::kInvalidArgument, "BAD_LAYER",
                     "layer: " + std::to_string(layer) + "; the model has layers 0 to " +
                         std::to_string(num_layers() - 1),
                     std::nullopt});
  }
  const int64_t values = static_cast<int64_t>(hidden.size());
  if (values == 0 || values % d_model_ != 0) {
    return ToStatus({absl::StatusCode::kInvalidArgument, "BAD_TENSOR",
                     "hidden: " + std::to_string(values) +
                         " values; expected one or more rows of " + std::to_string(d_model_),
                     std::nullopt});
  }
  return absl::OkStatus();
}

int64_t Session::ChunkRows() const {
  const int64_t asked = connection_->options.prefill_rows;
  return asked > 0 ? std::min(asked, message_rows_) : message_rows_;
}

void Session::Settle(int64_t layer, int64_t rows, const absl::Status& status) {
  Layer& state = layers_[static_cast<size_t>(layer)];
  if (status.ok()) {
    state = {state.length + rows, 0};
  } else {
    state.perhaps = state.length + rows;
  }
}

bool Session::FindLength(int64_t layer, const absl::Status& refused) {
  const Layer state = layers_[static_cast<size_t>(layer)];
  if (state.perhaps == 0 || ErrorOf(refused).reason != "POSITION_MISMATCH") {
    return false;
  }
  const absl::StatusOr<FoundSession> found = Client(connection_).FindSession(id_);
  if (!found.ok() || layer >= found->session.layer_lengths_size()) {
    return false;
  }
  const int64_t length = found->session.layer_lengths(static_cast<int>(layer));
  if (length < state.length || length == state.perhaps) {
    return false;  // not for rows that were sent from here
  }
  layers_[static_cast<size_t>(layer)].perhaps = length;
  return true;
}

absl::StatusOr<PrefillResult> Session::PrefillChunk(int64_t layer, std::span<const float> hidden,
                                                    OutputRows output_rows, int aims) {
  const Layer state = layers_[static_cast<size_t>(layer)];
  const int64_t rows = static_cast<int64_t>(hidden.size()) / d_model_;
  v1::PrefillRequest request;
  request.set_session_id(id_);
  request.set_layer(static_cast<uint32_t>(layer));
  request.set_position(state.length);
  request.set_rewind(state.perhaps > 0);
  request.set_expected_length(state.perhaps);
  request.set_output_rows(ToWire(output_rows));
  EncodeRows(hidden, d_model_, connection_->options.wire_dtype, request.mutable_hidden());

  v1::PrefillResponse response;
  const CallOutcome call =
      CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool uncertain) {
        if (uncertain) {
          request.set_rewind(true);
          request.set_expected_length(state.length + rows);
        }
        response.Clear();
        return connection_->attention->Prefill(context, request, &response);
      });
  if (call.status.ok() || call.uncertain) {
    Settle(layer, rows, call.status);
  }
  if (aims > 0 && FindLength(layer, call.status)) {
    return PrefillChunk(layer, hidden, output_rows, aims - 1);
  }
  if (!call.status.ok()) {
    return call.status;
  }
  PrefillResult result;
  result.output_position = response.output_position();
  result.timing = {response.timing().queue_ns(), response.timing().compute_ns(),
                   response.timing().batch_rows()};
  if (absl::Status decoded = DecodeRows(response.output(), d_model_, &result.output);
      !decoded.ok()) {
    return decoded;
  }
  return result;
}

absl::StatusOr<PrefillResult> Session::Prefill(int64_t layer, std::span<const float> hidden,
                                               const PrefillOptions& options) {
  if (absl::Status status = CheckRows(layer, hidden); !status.ok()) {
    return status;
  }
  const size_t step = static_cast<size_t>(ChunkRows() * d_model_);
  PrefillResult whole;
  whole.output_position = length(layer);
  for (size_t begin = 0; begin < hidden.size(); begin += step) {
    const std::span<const float> part =
        hidden.subspan(begin, std::min(step, hidden.size() - begin));
    const bool last = begin + step >= hidden.size();
    // "Last" is the last row of the whole input: earlier calls want none back.
    const OutputRows rows =
        !last && options.output_rows == OutputRows::kLast ? OutputRows::kNone : options.output_rows;
    absl::StatusOr<PrefillResult> answer = PrefillChunk(layer, part, rows);
    if (!answer.ok()) {
      return answer.status();
    }
    if (options.on_chunk) {
      options.on_chunk(*answer);
    }
    Join(*std::move(answer), &whole);
  }
  return whole;
}

absl::Status Session::Rewind(int64_t position) {
  v1::RewindSessionRequest request;
  request.set_session_id(id_);
  request.set_position(position);
  v1::Session response;
  const CallOutcome call = CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool) {
    return connection_->sessions->RewindSession(context, request, &response);
  });
  if (call.status.ok()) {
    Adopt(response);
  }
  return call.status;
}

absl::StatusOr<v1::Session> Session::Refresh() {
  v1::GetSessionRequest request;
  request.set_session_id(id_);
  v1::Session response;
  const CallOutcome call = CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool) {
    return connection_->sessions->GetSession(context, request, &response);
  });
  if (!call.status.ok()) {
    return call.status;
  }
  Adopt(response);
  return response;
}

}  // namespace attnd::client
