// Client::Decode: one layer, rows of many sessions, many outcomes.
#include <optional>
#include <thread>

#include "client/cpp/client.h"
#include "client/cpp/connection.h"
#include "client/cpp/tensor.h"
#include "client/cpp/unary.h"

namespace attnd::client {
namespace {

absl::Status BadBatch(const std::string& message) {
  return ToStatus({absl::StatusCode::kInvalidArgument, "BAD_BATCH", message, std::nullopt});
}

absl::Status CheckItems(std::span<const DecodeItem> items) {
  if (items.empty()) {
    return BadBatch("sequences: none; expected at least one");
  }
  for (const DecodeItem& item : items) {
    if (item.session == nullptr || item.num_tokens < 1) {
      return BadBatch("sequences: every item needs a session and num_tokens of at least 1");
    }
  }
  return absl::OkStatus();
}

// The items of a Decode that did not run and are to be sent again, since their sessions are moving
// or are longer than expected; and their rows.
struct Waiting {
  std::vector<size_t> indices;
  std::vector<DecodeItem> items;
  std::vector<float> rows;  // [sum of num_tokens, d_model]
};

// Calls `visit(index, first value, values)` for each item's rows of width d_model.
template <typename Visit>
void ForEachItem(std::span<const DecodeItem> items, int64_t d_model, const Visit& visit) {
  size_t begin = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t values = static_cast<size_t>(items[i].num_tokens * d_model);
    visit(i, begin, values);
    begin += values;
  }
}

Waiting WaitingOf(std::span<const DecodeItem> items, std::span<const float> hidden, int64_t d_model,
                  const DecodeResult& result,
                  const std::function<bool(const DecodeItem&, const absl::Status&)>& waits) {
  Waiting waiting;
  ForEachItem(items, d_model, [&](size_t i, size_t begin, size_t values) {
    if (!result.statuses[i].ok() && waits(items[i], result.statuses[i])) {
      waiting.indices.push_back(i);
      waiting.items.push_back(items[i]);
      waiting.rows.insert(waiting.rows.end(), hidden.begin() + static_cast<int64_t>(begin),
                          hidden.begin() + static_cast<int64_t>(begin + values));
    }
  });
  return waiting;
}

// Puts the outcome of the items that waited in its places.
void Merge(std::span<const DecodeItem> items, int64_t d_model, const Waiting& waiting,
           const absl::StatusOr<DecodeResult>& later, DecodeResult* result) {
  std::vector<size_t> first(items.size());
  ForEachItem(items, d_model, [&](size_t i, size_t begin, size_t) { first[i] = begin; });
  ForEachItem(waiting.items, d_model, [&](size_t i, size_t begin, size_t values) {
    const size_t index = waiting.indices[i];
    result->statuses[index] = later.ok() ? later->statuses[i] : later.status();
    if (later.ok()) {
      std::copy_n(later->output.begin() + static_cast<int64_t>(begin), values,
                  result->output.begin() + static_cast<int64_t>(first[index]));
    }
  });
  if (later.ok()) {
    result->timing.queue_ns += later->timing.queue_ns;
    result->timing.compute_ns += later->timing.compute_ns;
    result->timing.batch_rows = later->timing.batch_rows;
  }
}

}  // namespace

v1::DecodeRequest Client::DecodeRequestOf(int64_t layer, std::span<const DecodeItem> items) {
  v1::DecodeRequest request;
  request.set_layer(static_cast<uint32_t>(layer));
  for (const DecodeItem& item : items) {
    const Session::Layer& state = item.session->layers_[static_cast<size_t>(layer)];
    v1::SequenceStep* step = request.add_sequences();
    step->set_session_id(item.session->id_);
    step->set_position(state.length);
    step->set_num_tokens(static_cast<uint32_t>(item.num_tokens));
    step->set_rewind(state.perhaps > 0);
    step->set_expected_length(state.perhaps);
  }
  return request;
}

absl::StatusOr<DecodeResult> Client::Decode(int64_t layer, std::span<const DecodeItem> items,
                                            std::span<const float> hidden) {
  const auto start = std::chrono::steady_clock::now();
  const RetryOptions& retry = connection_->options.retry;
  Backoff backoff(retry);
  absl::StatusOr<DecodeResult> result = DecodeOnce(layer, items, hidden);
  int aims = Session::kAims;
  while (result.ok()) {
    std::optional<FailedTry> failed;  // by a move
    bool aimed = false;
    const Waiting waiting = WaitingOf(items, hidden, items[0].session->d_model_, *result,
                                      [&](const DecodeItem& item, const absl::Status& status) {
                                        if (aims > 0 && item.session->FindLength(layer, status)) {
                                          return aimed = true;
                                        }
                                        const FailedTry one =
                                            FailedSince(*connection_, ErrorOf(status), start);
                                        const bool waits = WaitsForMove(one, retry);
                                        failed = waits ? one : failed;
                                        return waits;
                                      });
    aims -= aimed ? 1 : 0;
    if (waiting.items.empty()) {
      break;
    }
    if (failed.has_value()) {
      std::this_thread::sleep_for(
          backoff.PauseAfter(*failed, Random64()).value_or(retry.max_backoff));
    }
    Merge(items, items[0].session->d_model_, waiting,
          DecodeOnce(layer, waiting.items, waiting.rows), &*result);
  }
  return result;
}

absl::StatusOr<DecodeResult> Client::DecodeOnce(int64_t layer, std::span<const DecodeItem> items,
                                                std::span<const float> hidden) {
  if (absl::Status status = CheckItems(items); !status.ok()) {
    return status;
  }
  for (const DecodeItem& item : items) {
    if (absl::Status status = item.session->CheckRows(layer, hidden); !status.ok()) {
      return status;
    }
  }
  const int64_t d_model = items[0].session->d_model_;
  v1::DecodeRequest request = DecodeRequestOf(layer, items);
  EncodeRows(hidden, d_model, connection_->options.wire_dtype, request.mutable_hidden());
  v1::DecodeResponse response;
  bool repeated = false;
  const CallOutcome call =
      CallWithRetry(*connection_, [&](grpc::ClientContext* context, bool uncertain) {
        repeated = uncertain;
        for (int i = 0; uncertain && i < request.sequences_size(); ++i) {
          v1::SequenceStep* step = request.mutable_sequences(i);
          step->set_rewind(true);
          step->set_expected_length(step->position() + step->num_tokens());
        }
        response.Clear();
        return connection_->attention->Decode(context, request, &response);
      });
  if (!call.status.ok()) {
    for (const DecodeItem& item : items) {
      if (call.uncertain) {
        item.session->Settle(layer, item.num_tokens, call.status);
      }
    }
    return call.status;
  }
  if (response.results_size() != static_cast<int>(items.size())) {
    return absl::InternalError("results: the server sent " +
                               std::to_string(response.results_size()) + "; expected " +
                               std::to_string(items.size()));
  }
  DecodeResult result;
  result.timing = {response.timing().queue_ns(), response.timing().compute_ns(),
                   response.timing().batch_rows()};
  for (size_t i = 0; i < items.size(); ++i) {
    result.statuses.push_back(FromWire(response.results(static_cast<int>(i)).status()));
    if (result.statuses.back().ok() || repeated) {
      items[i].session->Settle(layer, items[i].num_tokens, result.statuses.back());
    }
  }
  if (absl::Status decoded = DecodeRows(response.output(), d_model, &result.output);
      !decoded.ok()) {
    return decoded;
  }
  if (result.output.size() != hidden.size()) {
    return absl::InternalError("output: the server sent " + std::to_string(result.output.size()) +
                               " elements; expected " + std::to_string(hidden.size()));
  }
  return result;
}

absl::StatusOr<std::vector<float>> Session::Decode(int64_t layer, std::span<const float> hidden) {
  if (absl::Status status = CheckRows(layer, hidden); !status.ok()) {
    return status;
  }
  const DecodeItem item{this, static_cast<int64_t>(hidden.size()) / d_model_};
  absl::StatusOr<DecodeResult> result =
      Client(connection_).Decode(layer, std::span<const DecodeItem>(&item, 1), hidden);
  if (!result.ok()) {
    return result.status();
  }
  if (!result->statuses[0].ok()) {
    return result->statuses[0];
  }
  return std::move(result->output);
}

}  // namespace attnd::client
