// A session as its client sees it: the positions of its layers are kept here, so that the caller
// names layers and rows only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attnd/v1/attnd.pb.h"

namespace attnd::client {

struct Connection;
struct ForkOptions;

// Where the server's time went, summed over the calls of a result.
struct Timing {
  int64_t queue_ns = 0;
  int64_t compute_ns = 0;
  int64_t batch_rows = 0;  // of the last batch
};

enum class OutputRows { kAll, kLast, kNone };

struct PrefillResult {
  // Absolute position of output's first row. Rows inside a bidirectional prefix are answered
  // once the prefix is complete: it may be less than the call's position, and there may be none.
  int64_t output_position = 0;
  std::vector<float> output;  // [m, d_model]
  Timing timing;
};

// Appends a later call's answer to an earlier one's; the rows of both are contiguous.
void Join(PrefillResult part, PrefillResult* whole);

struct PrefillOptions {
  OutputRows output_rows = OutputRows::kAll;
  // Called after each of the calls that a long input is cut into, with its own part; then a
  // failure of a later one loses no answer.
  std::function<void(const PrefillResult&)> on_chunk;
};

class Session {
 public:
  const std::string& id() const { return id_; }
  int64_t prefix_length() const { return prefix_length_; }
  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  // The position of the layer's next row.
  int64_t length(int64_t layer) const;

  // Appends `hidden` [n, d_model] to the layer and returns the attention outputs. Longer inputs
  // than options.prefill_rows go as several calls; when one fails, those before it stay
  // appended: length() says how far. A call whose fate is unknown is repeated with `rewind`;
  // when that fails too, the next Prefill or Decode of the layer starts with the rewind.
  absl::StatusOr<PrefillResult> Prefill(int64_t layer, std::span<const float> hidden,
                                        const PrefillOptions& options = {});

  // Appends rows of this session alone (see Client::Decode): [num_tokens, d_model] in and out.
  absl::StatusOr<std::vector<float>> Decode(int64_t layer, std::span<const float> hidden);

  // Cuts every layer longer than `position`, or none.
  absl::Status Rewind(int64_t position);
  // What the server holds for it; also takes its lengths over.
  absl::StatusOr<v1::Session> Refresh();
  // A session of its own that continues from here; see Client::ForkSession.
  absl::StatusOr<std::unique_ptr<Session>> Fork(const ForkOptions& fork);
  // Ends the session; the bytes that came free.
  absl::StatusOr<int64_t> Close();

 private:
  friend class Client;
  friend class ReplayingSession;
  friend class SessionMaker;
  struct Layer {
    int64_t length = 0;
    // > 0: a step from `length` on was sent and its fate is unknown; the layer's length on the
    // server is `length` or this.
    int64_t perhaps = 0;
  };

  // How often a step asks for its layer's length: a late call may change it once more.
  static constexpr int kAims = 3;

  Session(std::shared_ptr<Connection> connection, const v1::Session& session, int64_t d_model,
          int64_t message_rows);

  absl::Status CheckRows(int64_t layer, std::span<const float> hidden) const;
  // Rows of one Prefill call.
  int64_t ChunkRows() const;
  absl::StatusOr<PrefillResult> PrefillChunk(int64_t layer, std::span<const float> hidden,
                                             OutputRows output_rows, int aims = kAims);
  // After lost calls of different sizes the layer's length is none of those expected: a step is
  // refused. Asks for it; true when the next step, with a rewind, begins right.
  bool FindLength(int64_t layer, const absl::Status& refused);
  // Takes over what a call on `rows` rows of the layer led to.
  void Settle(int64_t layer, int64_t rows, const absl::Status& status);
  void Adopt(const v1::Session& session);

  std::shared_ptr<Connection> connection_;
  std::string id_;
  int64_t prefix_length_ = 0;
  int64_t d_model_ = 0;
  int64_t message_rows_ = 0;  // rows that fit a message
  std::vector<Layer> layers_;
};

}  // namespace attnd::client
