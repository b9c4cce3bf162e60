// What a player compares after each operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/core/session_player.h"

namespace attnd {

bool Player::Agrees(const absl::Status& status, std::optional<Reason> expected, bool reserved) {
  if (!alone_ && ReasonOf(status) == Reason::kSessionEvicted) {
    return false;  // by another thread's need, just before it was held
  }
  if (!expected.has_value() && ReasonOf(status) == Reason::kCacheFull) {
    EXPECT_FALSE(reserved) << status;
    return false;
  }
  EXPECT_EQ(ReasonOf(status), expected) << status;
  return status.ok();
}

void Player::FindEvicted() {
  if (!alone_) {
    return;
  }
  int64_t latest = -1;
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const absl::Status status = Alive(it->first);
    if (status.ok()) {
      ++it;
      continue;
    }
    const bool expired = it->second.last_use + it->second.ttl_ns <= real_.clock.Now();
    EXPECT_EQ(ReasonOf(status), expired ? Reason::kSessionExpired : Reason::kSessionEvicted);
    if (!expired) {
      EXPECT_EQ(it->second.max_tokens, 0);
      latest = std::max(latest, it->second.last_use);
      Count("evicted", absl::OkStatus());
    }
    it = sessions_.erase(it);
  }
  if (latest < 0) {
    return;
  }
  for (const auto& [id, model] : sessions_) {
    const bool candidate = model.max_tokens == 0 && !Exported(id) && Bytes(model) > 0;
    EXPECT_TRUE(!candidate || model.last_use >= latest) << id;
  }
}

absl::Status Player::Alive(const std::string& id) {
  const auto page = real_.store->List("", 100, "");
  const bool there = std::any_of(page->sessions.begin(), page->sessions.end(),
                                 [&](const SessionInfo& info) { return info.id == id; });
  return there ? absl::OkStatus() : real_.store->Find("", id).status();
}

bool Player::HeldElsewhere(const ModelPage& page, const std::string& id) const {
  return std::any_of(
             sessions_.begin(), sessions_.end(),
             [&](const auto& entry) { return entry.first != id && entry.second.Holds(page); }) ||
         std::any_of(exports_.begin(), exports_.end(),
                     [&](const OpenExport& open) { return open.model.Holds(page); });
}

int64_t Player::Bytes(const ModelSession& model) const {
  int64_t bytes = 0;
  for (const ModelLayer& layer : model.layers) {
    const PerKind pages = layer.Pages();
    for (int kind = 0; kind < kNumPageKinds; ++kind) {
      bytes += pages[kind] * real_.page_bytes[kind];
    }
  }
  return bytes;
}

void Player::CheckSession(const std::string& id) {
  const ModelSession& model = sessions_[id];
  const std::shared_ptr<Session> session = Find(id);  // so that nobody's need ends it now
  if (session == nullptr) {
    return;
  }
  const auto info = real_.store->Get("", id);
  if (!info.ok()) {
    EXPECT_FALSE(alone_) << info.status();
    LetGo(session);
    sessions_.erase(id);
    return;
  }
  EXPECT_EQ(info->cache_bytes, Bytes(model)) << id;
  for (int64_t i = 0; i < real_.plan.num_layers(); ++i) {
    const ModelLayer& list = model.layers[static_cast<size_t>(i)];
    EXPECT_EQ(info->layer_lengths[static_cast<size_t>(i)], list.length()) << id;
    CheckLayer(session->Cache(i), list);
  }
  LetGo(session);
}

void Player::CheckLayer(const LayerCache& cache, const ModelLayer& list) {
  if (cache.length != list.length()) {
    return;  // ended, or said already
  }
  EXPECT_EQ(cache.first, list.first);
  EXPECT_EQ(cache.last_step_start, list.last_start);
  EXPECT_EQ(cache.first_page, list.low);
  ASSERT_EQ(cache.main.size(), static_cast<int64_t>(list.main.size()));
  ASSERT_EQ(cache.tail.size(), static_cast<int64_t>(list.tail.size()));
  ASSERT_EQ(cache.held.size(), static_cast<int64_t>(list.held.size()));
  const LayerKind kind = list.local ? LayerKind::kLocal : LayerKind::kGlobal;
  const auto row = [&](int64_t token) { return list.rows[static_cast<size_t>(token)]; };
  int64_t wrong = 0;
  for (int64_t t = cache.first_page * 64; t < cache.length; ++t) {
    wrong += IsRow(MainRow(cache.main, t - cache.first_page * 64, kind), row(t)) ? 0 : 1;
  }
  for (int64_t t = 0; t < cache.tail.size() * 64; ++t) {
    wrong += IsRow(MainRow(cache.tail, t, kind), row(t + cache.tail_page * 64)) ? 0 : 1;
  }
  for (int64_t t = 0; t < cache.held_rows; ++t) {
    wrong += IsRow(HeldRow(cache.held, t), row(t)) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0) << "rows of " << cache.length;
}

void Player::CheckPool() {
  std::set<ModelPage> local, global, held;
  for (const auto& [id, model] : sessions_) {
    for (const ModelLayer& layer : model.layers) {
      layer.AddPages(&local, &global, &held);
    }
  }
  for (const OpenExport& open : exports_) {
    for (const ModelLayer& layer : open.model.layers) {
      layer.AddPages(&local, &global, &held);
    }
  }
  const PoolStats stats = real_.pool->stats();
  PerKind used{};
  used[Index(PageKind::kLocal)] = static_cast<int64_t>(local.size());
  used[Index(PageKind::kGlobal)] = static_cast<int64_t>(global.size());
  used[Index(PageKind::kHeld)] = static_cast<int64_t>(held.size());
  int64_t total = 0;
  for (int kind = 0; kind < kNumPageKinds; ++kind) {
    EXPECT_EQ(stats.used_bytes[kind], used[kind] * real_.page_bytes[kind]) << kind;
    EXPECT_GE(stats.reserved_bytes[kind], 0);
    total += stats.used_bytes[kind] + stats.reserved_bytes[kind];
  }
  EXPECT_LE(total, stats.capacity_bytes);
  EXPECT_EQ(real_.store->stats().sessions, static_cast<int64_t>(sessions_.size()));
  if (operations_ % 64 == 0) {
    real_.pool->Audit();
  }
}

}  // namespace attnd
