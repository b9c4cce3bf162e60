// Every knob of a client, with its default and its reason.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "kernels/dtype.h"

namespace attnd::client {

struct RetryOptions {
  // Tries of one call, the first included. Repeated are failures of the transport (UNAVAILABLE
  // without a reason): whether such a call took effect is unknown, and a step is repeated with
  // `rewind`, which gives the same answer either way. Waiting for a move is bounded below instead.
  int max_attempts = 4;
  // The pause before the second try; doubles up to the maximum, and is drawn from its upper half.
  std::chrono::milliseconds initial_backoff{50};
  std::chrono::milliseconds max_backoff{2000};
  // Also repeats what the server refused with advice to come back (CACHE_FULL, QUEUE_FULL ...),
  // after the advised pause. Off: a full cache is the caller's to decide about.
  bool wait_when_advised = false;
  // How long a call is repeated while its session is on its way elsewhere (SESSION_MOVING). A
  // session of 10 GB is copied in about that time. 0: never.
  std::chrono::milliseconds move_wait{30'000};
  // How long SESSION_UNKNOWN is repeated once another replica than before answers: a session that
  // moves behind a balancer is unknown there until it has arrived, and a drain moves one after
  // another. 0: never.
  std::chrono::milliseconds arrival_wait{30'000};
  // The same where the replica before did not answer at the end: it has probably died, and its
  // sessions with it.
  std::chrono::milliseconds broken_arrival_wait{5'000};
};

// TLS to the server; what the files hold, as PEM text, not their paths.
struct TlsOptions {
  bool enabled = false;
  std::string authorities;  // whom to believe that the server is itself; empty: the system's
  // This client's own chain and key, for servers that ask (attnd --tls_client_ca); both or neither.
  std::string certificate, private_key;
};

struct ClientOptions {
  // Of one try of a call. Each step also tells the server, which does not compute what is late.
  std::chrono::milliseconds deadline{60'000};
  // How long Connect() waits for the server.
  std::chrono::milliseconds connect_timeout{10'000};
  // Largest message sent and received; the server's own default. gRPC's is 4 MiB, less than
  // the answer of 2,048 rows of 512.
  int64_t max_message_bytes = int64_t{256} << 20;
  // Rows of one Prefill call; longer inputs are sent as several. 0: as many as a message holds.
  int64_t prefill_rows = 1024;
  // Element type of rows on the wire; rows are float32 on both sides of this library.
  DType wire_dtype = DType::kF32;
  // What the balancer places sessions by: sent as metadata attnd-session-key on every call and
  // stored in the session. Sessions that share a Decode or a stream must share it. Printable ASCII.
  // Empty: a random one for this client.
  std::string session_key;
  TlsOptions tls;
  // Sent with every call as `authorization: Bearer TOKEN` (attnd --auth_tokens_file). Without TLS
  // the network can read it.
  std::string auth_token;
  RetryOptions retry;
};

}  // namespace attnd::client
