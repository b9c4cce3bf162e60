// What the tests of replaying sessions begin with.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/replaying_session.h"

namespace attnd::client {

inline const std::vector<float> kThreeRows = {1, 2, 3, 4, 5, 6};
inline const std::vector<float> kThreeAnswers = {2, 4, 6, 8, 10, 12};
inline const std::vector<float> kRow = {7, 8};
inline const std::vector<float> kAnswer = {14, 16};

inline ReplayOptions Within(int64_t ms) {
  ReplayOptions options;
  options.recovery_timeout = std::chrono::milliseconds(ms);
  return options;
}

// Four rows in layer 0, one in layer 1.
inline std::unique_ptr<ReplayingSession> Filled(Client& client, const ReplayOptions& options = {},
                                                const std::string& name = "a") {
  auto session = *ReplayingSession::Create(client, {name, 0, 0, {}}, options);
  EXPECT_EQ(session->Prefill(0, kThreeRows)->output, kThreeAnswers);
  EXPECT_EQ(*session->Decode(0, kRow), kAnswer);
  EXPECT_EQ(*session->Decode(1, kRow), kAnswer);
  return session;
}

// The only session that is there.
inline std::string OnlyOne(Client& client) {
  const auto sessions = *client.ListSessions();
  EXPECT_EQ(sessions.size(), 1u);
  return sessions.empty() ? "" : sessions[0].session_id();
}

}  // namespace attnd::client
