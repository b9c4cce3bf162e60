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
#include "client/cpp/transfer.h"

namespace attnd::client {

struct Connection;

struct CreateOptions {
  std::string session_id;     // empty: 128 random bits
  int64_t prefix_length = 0;  // P: positions [0, P) attend to each other in both directions
  int64_t max_tokens = 0;     // > 0: cache for so many is reserved now, and is the cap
  std::chrono::milliseconds idle_ttl{0};  // 0: the server's default
};

struct ForkOptions {
  std::string new_session_id;  // empty: 128 random bits
  int64_t position = 0;        // the fork holds [0, position); 0: each layer as it is
  int64_t max_tokens = 0;      // as in CreateOptions; the fork has a reservation of its own
  std::chrono::milliseconds idle_ttl{0};
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

// A session, and the server that told of it.
struct FoundSession {
  v1::Session session;
  std::string server;  // attnd-server of the answer; empty: unknown
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
  // The session as it is held, and where.
  absl::StatusOr<FoundSession> FindSession(const std::string& session_id);
  // A session that continues from a copy of this one, independently of it. Takes next to no
  // memory until they differ: pages are shared, and copied on write.
  absl::StatusOr<std::unique_ptr<Session>> ForkSession(const std::string& session_id,
                                                       const ForkOptions& fork = {});
  // Hands the session, as it is at one moment, to `sink` in parts (session_file.h writes a file of
  // them). Bounded memory; when the sink fails, so does the call. The digest is verified here:
  // DATA_LOSS, BAD_DIGEST or TRUNCATED. Repeated only before the first part has come; has no
  // deadline, but fails when nothing comes for ClientOptions::deadline.
  absl::Status ExportSession(const std::string& session_id, const ExportOptions& options,
                             const ChunkSink& sink);
  // Makes a session from the parts that `source` yields. Never repeated: FAILED_PRECONDITION,
  // MODEL_MISMATCH or FORMAT_MISMATCH at another server than the export's kind; ALREADY_EXISTS,
  // SESSION_EXISTS; DATA_LOSS where the parts are damaged or end early. The call carries the
  // affinity key that is stored in the session, so that a balancer places it like the session's
  // calls.
  absl::StatusOr<std::unique_ptr<Session>> ImportSession(const ChunkSource& source,
                                                         const ImportOptions& options = {});
  // Opens a session for steps again whose export with `move` has ended and led to nothing.
  absl::Status CancelMove(const std::string& session_id);
  // All sessions of this tenant, at the moment of each page.
  absl::StatusOr<std::vector<v1::Session>> ListSessions();
  // Closes by id; the bytes that came free.
  absl::StatusOr<int64_t> CloseSession(const std::string& session_id);

  // Appends rows of many sessions to one layer: `hidden` is [sum of num_tokens, d_model], in the
  // order of `items`, each session at most once. Repeated with `rewind` when the transport fails,
  // and for sessions that are moving.
  absl::StatusOr<DecodeResult> Decode(int64_t layer, std::span<const DecodeItem> items,
                                      std::span<const float> hidden);

  absl::StatusOr<v1::Stats> Stats();
  // `service` is "" for the whole server, or "attnd.v1.AttentionService".
  absl::StatusOr<Health> CheckHealth(const std::string& service = "");
  // Takes the server out of service without stopping it; the number of sessions still there.
  absl::StatusOr<int64_t> Drain();

  // Another client on the same connection, whose calls carry this affinity key.
  absl::StatusOr<std::unique_ptr<Client>> WithKey(const std::string& key) const;
  const ClientOptions& options() const;
  // For StepStream.
  const std::shared_ptr<Connection>& connection() const { return connection_; }

 private:
  friend class Session;
  friend class ReplayingSession;
  friend class SessionMaker;
  friend absl::StatusOr<std::unique_ptr<Session>> MoveSession(Client& source,
                                                              const std::string& session_id,
                                                              Client& target,
                                                              const Progress& progress);
  explicit Client(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

  // The session at the lengths that `session` has.
  absl::StatusOr<std::unique_ptr<Session>> Open(const v1::Session& session);
  // Whether the session takes steps, by one that changes nothing.
  absl::Status ProbeSteps(const std::string& session_id);
  absl::StatusOr<DecodeResult> DecodeOnce(int64_t layer, std::span<const DecodeItem> items,
                                          std::span<const float> hidden);
  static v1::DecodeRequest DecodeRequestOf(int64_t layer, std::span<const DecodeItem> items);

  std::shared_ptr<Connection> connection_;
};

}  // namespace attnd::client
