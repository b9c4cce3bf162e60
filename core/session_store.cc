#include "core/session_store.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/session_cut.h"
#include "kernels/check.h"

namespace attnd {
namespace {

// Recent ends that are remembered: enough for every client of a full server to learn once why
// its session is gone; about 15 MB at the most.
constexpr size_t kMaxRememberedEnds = 100'000;
constexpr size_t kMaxIdLength = 128;
constexpr int64_t kMaxAffinityKey = 256;

// By character. Ids are looked at with every step: 5 instructions a character instead of 12.
constexpr std::array<bool, 256> kIdCharacters = [] {
  std::array<bool, 256> allowed{};
  for (const char c : std::string_view("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789._-")) {
    allowed[static_cast<unsigned char>(c)] = true;
  }
  return allowed;
}();

bool IsIdCharacter(char c) { return kIdCharacters[static_cast<unsigned char>(c)]; }

// 128 random bits of the system, in hexadecimal: nobody guesses another's session.
std::string MakeId() {
  std::array<unsigned char, 16> bytes{};
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = getrandom(bytes.data() + got, bytes.size() - got, 0);
    got += n > 0 ? static_cast<size_t>(n) : 0;
  }
  static constexpr char kHex[] = "0123456789abcdef";
  std::string id = "s-";
  for (unsigned char byte : bytes) {
    id += kHex[byte >> 4];
    id += kHex[byte & 15];
  }
  return id;
}

absl::Status BadArgument(const std::string& field, int64_t value, const std::string& expected) {
  return MakeError(Reason::kBadArgument,
                   field + " is " + std::to_string(value) + "; expected " + expected);
}

// It travels as metadata, which takes nothing else: a session with another could not be moved.
absl::Status CheckAffinityKey(const std::string& key) {
  const auto bad = std::find_if(key.begin(), key.end(), [](char c) { return c < ' ' || c > '~'; });
  if (bad == key.end()) {
    return absl::OkStatus();
  }
  return BadArgument("affinity_key: byte " + std::to_string(bad - key.begin()),
                     static_cast<unsigned char>(*bad), "printable ASCII, 32 to 126");
}

}  // namespace

absl::Status CheckSessionId(const std::string& id) {
  if (id.empty() || id.size() > kMaxIdLength) {
    return MakeError(Reason::kBadSessionId, "session_id has " + std::to_string(id.size()) +
                                                " characters; expected 1 to 128");
  }
  if (!std::all_of(id.begin(), id.end(), IsIdCharacter)) {
    return MakeError(Reason::kBadSessionId,
                     "session_id has a character outside A-Z, a-z, 0-9, '.', '_' and '-'");
  }
  return absl::OkStatus();
}

SessionStore::SessionStore(const LayerPlan& plan, const StoreLimits& limits, PagePool* pool,
                           const Clock& clock)
    : plan_(plan), limits_(limits), pool_(pool), clock_(clock) {}

absl::Status SessionStore::CheckOptions(const CreateOptions& options) const {
  if (!options.id.empty()) {
    if (absl::Status status = CheckSessionId(options.id); !status.ok()) {
      return status;
    }
  }
  const std::string up_to_max = "0 to max_seq_len, " + std::to_string(plan_.max_seq_len);
  if (options.prefix_length < 0 || options.prefix_length > plan_.max_seq_len) {
    return BadArgument("prefix_length", options.prefix_length, up_to_max);
  }
  if (options.max_tokens < 0 || options.max_tokens > plan_.max_seq_len) {
    return BadArgument("max_tokens", options.max_tokens, up_to_max);
  }
  if (options.max_tokens > 0 && options.prefix_length > options.max_tokens) {
    return BadArgument("prefix_length", options.prefix_length,
                       "at most max_tokens, " + std::to_string(options.max_tokens));
  }
  if (options.idle_ttl_ns == 0 || options.idle_ttl_ns > limits_.max_idle_ttl_ns) {
    return BadArgument(
        "idle_ttl (in ns)", options.idle_ttl_ns,
        "more than 0 and at most " + std::to_string(limits_.max_idle_ttl_ns) + " (--max_idle_ttl)");
  }
  if (static_cast<int64_t>(options.affinity_key.size()) > kMaxAffinityKey) {
    return MakeError(Reason::kBadArgument,
                     "affinity_key has " + std::to_string(options.affinity_key.size()) +
                         " bytes; expected at most " + std::to_string(kMaxAffinityKey));
  }
  return CheckAffinityKey(options.affinity_key);
}

absl::Status SessionStore::CheckRoomFor(const Key& key, int64_t preparing) const {
  if (sessions_.contains(key)) {
    return MakeError(Reason::kSessionExists, "session '" + key.second + "' exists already");
  }
  const int64_t sessions = static_cast<int64_t>(sessions_.size()) + preparing;
  if (sessions >= limits_.max_sessions) {
    return MakeRetryableError(
        Reason::kTooManySessions,
        "there are " + std::to_string(sessions) + " sessions, as many as --max_sessions allows",
        1000);
  }
  return absl::OkStatus();
}

absl::StatusOr<SessionInfo> SessionStore::Create(const CreateOptions& options) {
  absl::StatusOr<Prepared> prepared = Prepare(options);
  if (!prepared.ok()) {
    return prepared.status();
  }
  return Publish(*std::move(prepared));
}

absl::StatusOr<SessionStore::Prepared> SessionStore::Prepare(const CreateOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) {
    return status;
  }
  SessionSpec spec;
  spec.tenant = options.tenant;
  spec.id = options.id.empty() ? MakeId() : options.id;
  spec.prefix_length = options.prefix_length;
  spec.max_tokens = options.max_tokens;
  spec.idle_ttl_ns = options.idle_ttl_ns < 0 ? limits_.idle_ttl_ns : options.idle_ttl_ns;
  spec.affinity_key = options.affinity_key;
  Prepared prepared;
  {
    // Before others make room for it.
    std::lock_guard lock(mutex_);
    if (absl::Status status = CheckRoomFor({spec.tenant, spec.id}, preparing_); !status.ok()) {
      return status;
    }
    ++preparing_;
    prepared.place_.reset(this);
  }
  prepared.session_ = std::make_shared<Session>(std::move(spec), plan_, limits_.max_rewind, pool_,
                                                &tokens_, clock_.Now(), clock_.WallNs());
  if (options.max_tokens > 0) {
    const PerKind pages = ReservedPages(plan_, options.prefix_length, options.max_tokens,
                                        limits_.max_rewind, limits_.chunk_rows);
    if (absl::Status status = pool_->Promise(prepared->account(), pages); !status.ok()) {
      return status;
    }
  }
  return prepared;
}

absl::StatusOr<SessionInfo> SessionStore::Publish(Prepared prepared) {
  const std::shared_ptr<Session>& session = prepared.session_;
  const Key key{session->spec().tenant, session->spec().id};
  const MonotonicNs now = clock_.Now();
  session->Touch(now);
  bool sooner = false;
  {
    std::lock_guard lock(mutex_);
    if (absl::Status status = CheckRoomFor(key, preparing_ - 1); !status.ok()) {
      return status;
    }
    --preparing_;
    prepared.place_.release();  // NOLINT(bugprone-unused-return-value): the session takes it
    const auto expiry = expiries_.emplace(session->expiry(), key);
    sooner = expiry == expiries_.begin();
    sessions_.emplace(key, Entry{session, expiry});
    ends_.erase(key);
    ++created_;
  }
  if (sooner && expiry_listener_) {
    expiry_listener_();
  }
  return session->Info(now, clock_.WallNs());
}

absl::StatusOr<SessionInfo> SessionStore::Fork(const Session& parent, const ForkOptions& options) {
  absl::StatusOr<std::vector<LayerCache>> caches = ForkCaches(plan_, options.position, parent);
  if (!caches.ok()) {
    return caches.status();
  }
  CreateOptions create;
  create.tenant = parent.spec().tenant;
  create.id = options.id;
  create.prefix_length = parent.spec().prefix_length;
  create.max_tokens = options.max_tokens;
  create.idle_ttl_ns = options.idle_ttl_ns;
  create.affinity_key = parent.spec().affinity_key;
  for (const LayerCache& cache : *caches) {
    if (options.max_tokens > 0 && cache.length > options.max_tokens) {
      return MakeError(Reason::kPastMaxTokens,
                       "max_tokens is " + std::to_string(options.max_tokens) +
                           "; expected 0 or at least " + std::to_string(cache.length) +
                           ", the length of a layer");
    }
  }
  absl::StatusOr<Prepared> fork = Prepare(create);
  if (!fork.ok()) {
    return fork.status();
  }
  absl::StatusOr<std::vector<LayerCache>> shared = ShareWith(*caches, (*fork)->account(), pool_);
  if (!shared.ok()) {
    return shared.status();
  }
  if (absl::Status status = (*fork)->CommitAll(*std::move(shared)); !status.ok()) {
    return status;
  }
  return Publish(*std::move(fork));
}

absl::Status SessionStore::NotFound(const Key& key) const {
  if (const auto end = ends_.find(key); end != ends_.end()) {
    return SessionEndError(key.second, end->second.end);
  }
  return MakeError(Reason::kSessionUnknown, "session '" + key.second + "' is not known here");
}

absl::StatusOr<std::shared_ptr<Session>> SessionStore::Find(const std::string& tenant,
                                                            const std::string& id) {
  if (absl::Status status = CheckSessionId(id); !status.ok()) {
    return status;
  }
  const Key key{tenant, id};
  std::lock_guard lock(mutex_);
  const auto it = sessions_.find(key);
  if (it == sessions_.end()) {
    return NotFound(key);
  }
  it->second.session->TouchUnlessMoved(clock_.Now());
  return it->second.session;
}

absl::StatusOr<SessionInfo> SessionStore::Get(const std::string& tenant, const std::string& id) {
  absl::StatusOr<std::shared_ptr<Session>> session = Find(tenant, id);
  if (!session.ok()) {
    return session.status();
  }
  const MonotonicNs now = clock_.Now();
  (*session)->Touch(now);
  return (*session)->Info(now, clock_.WallNs());
}

absl::StatusOr<SessionPage> SessionStore::List(const std::string& tenant, int64_t page_size,
                                               const std::string& page_token) const {
  if (!page_token.empty() && !CheckSessionId(page_token).ok()) {
    return MakeError(Reason::kBadArgument, "page_token is not one that ListSessions has returned");
  }
  std::vector<std::shared_ptr<Session>> listed;
  SessionPage page;
  {
    std::lock_guard lock(mutex_);
    auto it = sessions_.upper_bound(Key{tenant, page_token});
    for (; it != sessions_.end() && it->first.first == tenant; ++it) {
      if (static_cast<int64_t>(listed.size()) == page_size) {
        page.next_page_token = listed.back()->spec().id;
        break;
      }
      listed.push_back(it->second.session);
    }
  }
  const MonotonicNs now = clock_.Now();
  const int64_t wall_ns = clock_.WallNs();
  for (const auto& session : listed) {
    if (session->Alive().ok()) {
      page.sessions.push_back(session->Info(now, wall_ns));
    }
  }
  return page;
}

void SessionStore::Remember(const Key& key, SessionEnd end) {
  ends_.insert_or_assign(key, RecentEnd{end, ++end_number_});
  end_order_.emplace_back(key, end_number_);
  while (end_order_.size() > kMaxRememberedEnds) {
    const auto& [oldest, number] = end_order_.front();
    if (const auto it = ends_.find(oldest); it != ends_.end() && it->second.number == number) {
      ends_.erase(it);
    }
    end_order_.pop_front();
  }
  CountEnd(end);
}

void SessionStore::CountEnd(SessionEnd end) {
  closed_ += end == SessionEnd::kClosed ? 1 : 0;
  expired_ += end == SessionEnd::kExpired ? 1 : 0;
  evicted_ += end == SessionEnd::kEvicted ? 1 : 0;
}

absl::StatusOr<int64_t> SessionStore::Close(const std::string& tenant, const std::string& id) {
  if (absl::Status status = CheckSessionId(id); !status.ok()) {
    return status;
  }
  const Key key{tenant, id};
  std::shared_ptr<Session> session;
  {
    std::lock_guard lock(mutex_);
    const auto it = sessions_.find(key);
    if (it == sessions_.end()) {
      return NotFound(key);
    }
    session = std::move(it->second.session);
    expiries_.erase(it->second.expiry);
    sessions_.erase(it);
    Remember(key, SessionEnd::kClosed);
  }
  const int64_t bytes = session->End(SessionEnd::kClosed);
  if (end_listener_) {
    end_listener_();
  }
  return std::max<int64_t>(0, bytes);
}

MonotonicNs SessionStore::next_expiry() const {
  std::lock_guard lock(mutex_);
  return expiries_.empty() ? kNever : expiries_.begin()->first;
}

StoreStats SessionStore::stats() const {
  StoreStats stats;
  stats.tokens_local = tokens_.local.load(std::memory_order_relaxed);
  stats.tokens_global = tokens_.global.load(std::memory_order_relaxed);
  stats.tokens_held = tokens_.held.load(std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  stats.sessions = static_cast<int64_t>(sessions_.size());
  stats.created = created_;
  stats.closed = closed_;
  stats.expired = expired_;
  stats.evicted = evicted_;
  return stats;
}

}  // namespace attnd
