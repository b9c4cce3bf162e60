// The C++ client of attnd, synchronous and thread-safe: any number of threads may call one
// Client. A Session is used by one thread at a time. For steps in flight see step_stream.h.
//
//   auto client = attnd::client::Client::Connect("127.0.0.1:8470");
//   auto session = (*client)->CreateSession({});
//   auto answer = (*session)->Prefill(0, hidden);  // [n, d_model] in, [n, d_model] out
//
// Every call returns an absl::Status or StatusOr; ErrorOf() gives its reason (error.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attnd/v1/attnd.pb.h"
#include "client/cpp/error.h"
#include "client/cpp/options.h"
#include "client/cpp/session.h"

namespace attnd::client {

struct Connection;

struct CreateOptions {
  std::string session_id;     // empty: 128 random bits
  int64_t prefix_length = 0;  // P: positions [0, P) attend to each other in both directions
  int64_t max_tokens = 0;     // > 0: cache for so many is reserved now, and is the cap
  std::chrono::milliseconds idle_ttl{0};  // 0: the server's default
};

// One session's part of a Decode: `num_tokens` rows, causal among themselves.
struct DecodeItem {
  Session* session = nullptr;
  int64_t num_tokens = 1;
};

struct DecodeResult {
  std::vector<absl::Status> statuses;  // one an item; a failed one changed nothing
  std::vector<float> output;           // as the input; the rows of a failed item are zero
  Timing timing;

  bool all_ok() const;
};

enum class Health { kServing, kNotServing, kUnknownService };

class Client {
 public:
  // UNAVAILABLE when no server answers at `target` (host:port or unix:path) in time;
  // INVALID_ARGUMENT when an option is out of range.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& target,
                                                         const ClientOptions& options = {});

  // What the server serves; asked for once.
  absl::StatusOr<v1::ModelInfo> Model();

  absl::StatusOr<std::unique_ptr<Session>> CreateSession(const CreateOptions& create);
  // A session that exists already, at the lengths that the server reports.
  absl::StatusOr<std::unique_ptr<Session>> AttachSession(const std::string& session_id);
  // All sessions of this tenant, at the moment of each page.
  absl::StatusOr<std::vector<v1::Session>> ListSessions();
  // Closes by id; the bytes that came free.
  absl::StatusOr<int64_t> CloseSession(const std::string& session_id);

  // Appends rows of many sessions to one layer: `hidden` is [sum of num_tokens, d_model], in the
  // order of `items`, each session at most once. Repeated with `rewind` when the transport fails.
  absl::StatusOr<DecodeResult> Decode(int64_t layer, std::span<const DecodeItem> items,
                                      std::span<const float> hidden);

  absl::StatusOr<v1::Stats> Stats();
  // `service` is "" for the whole server, or "attnd.v1.AttentionService".
  absl::StatusOr<Health> CheckHealth(const std::string& service = "");
  // Takes the server out of service without stopping it; the number of sessions still there.
  absl::StatusOr<int64_t> Drain();

  const ClientOptions& options() const;
  // For StepStream.
  const std::shared_ptr<Connection>& connection() const { return connection_; }

 private:
  friend class Session;
  explicit Client(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

  static v1::DecodeRequest DecodeRequestOf(int64_t layer, std::span<const DecodeItem> items);

  std::shared_ptr<Connection> connection_;
};

}  // namespace attnd::client
