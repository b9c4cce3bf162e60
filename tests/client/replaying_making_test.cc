// Under which id a replaying session is made, and what its lost answers leave.
#include <gtest/gtest.h>

#include "client/cpp/replaying_session.h"
#include "tests/client/fake_server.h"
#include "tests/client/replaying_parts.h"

namespace attnd::client {
namespace {

using grpc::StatusCode;

TEST(ReplayingMaking, ACreateWhoseAnswerWasLostIsRepeatedUnderAnotherId) {
  FakeServer server;
  const auto client = server.Connect();
  server.FailNext({StatusCode::UNAVAILABLE, "", true, -1, true});
  const auto session = Filled(*client, {}, "");
  server.SwitchReplica();
  const std::string left = OnlyOne(*client);
  EXPECT_NE(left, session->id());
  ASSERT_TRUE(session->Rewind(3).ok());
  EXPECT_EQ(session->length(0), 3);
  EXPECT_EQ(session->length(1), 1);
  EXPECT_EQ(server.Length(session->id(), 0), 3);
  EXPECT_EQ(OnlyOne(*client), session->id()) << "the first one is closed";
}

TEST(ReplayingMaking, ARepeatedCreateClosesWhatTheFirstOneLeft) {
  FakeServer server;
  const auto client = server.Connect();
  server.FailNext({StatusCode::UNAVAILABLE, "", true});
  const auto session = *ReplayingSession::Create(*client, {});
  EXPECT_EQ(OnlyOne(*client), session->id());
  EXPECT_EQ(server.creates(), 2);
}

TEST(ReplayingMaking, ACallersIdIsKeptUntilItsFateIsUnknown) {
  FakeServer server;
  const auto client = server.Connect();
  server.FailNext({StatusCode::UNAVAILABLE, "DRAINING"});
  server.FailNext({StatusCode::UNAVAILABLE, "NOT_READY"});
  EXPECT_EQ((*ReplayingSession::Create(*client, {"a", 0, 0, {}}))->id(), "a");
  server.FailNext({StatusCode::UNAVAILABLE, "", true});
  EXPECT_EQ((*ReplayingSession::Create(*client, {"b", 0, 0, {}}))->id().substr(0, 2), "b.");
  EXPECT_EQ(client->ListSessions()->size(), 3u) << "b may be another's: it is not closed";
}

TEST(ReplayingMaking, WhatExistsUnderTheCallersIdIsNotTaken) {
  FakeServer server;
  const auto client = server.Connect();
  const auto other = *client->CreateSession({"a", 0, 0, {}});
  ASSERT_TRUE(other->Prefill(0, kThreeRows).ok());
  const auto refused = ReplayingSession::Create(*client, {"a", 0, 0, {}});
  EXPECT_EQ(ErrorOf(refused.status()).reason, "SESSION_EXISTS");
  EXPECT_EQ(server.creates(), 2);
  server.FailNext({StatusCode::UNAVAILABLE, ""});
  const auto session = *ReplayingSession::Create(*client, {"a", 0, 0, {}});
  EXPECT_NE(session->id(), "a");
  EXPECT_EQ(session->length(0), 0);
}

TEST(ReplayingMaking, ACreateWaitsForRoomOnlyWhenAsked) {
  FakeServer server;
  ClientOptions options;
  for (const bool waits : {false, true}) {
    options.retry.wait_when_advised = waits;
    const auto client = server.Connect(options);
    server.FailNext({StatusCode::RESOURCE_EXHAUSTED, "TOO_MANY_SESSIONS", false, 10});
    const auto session = ReplayingSession::Create(*client, {});
    EXPECT_EQ(session.ok(), waits) << session.status();
  }
}

TEST(ReplayingMaking, ACreateHasTheTimeOfARecovery) {
  FakeServer server;
  const auto client = server.Connect();
  for (int i = 0; i < 5; ++i) {  // more than a call's own tries
    server.FailNext({StatusCode::UNAVAILABLE, ""});
  }
  EXPECT_TRUE(ReplayingSession::Create(*client, {}).ok());
  for (int i = 0; i < 1000; ++i) {
    server.FailNext({StatusCode::UNAVAILABLE, ""});
  }
  const absl::Status status = ReplayingSession::Create(*client, {}, Within(200)).status();
  EXPECT_NE(status.message().find("not mended within recovery_timeout, 200 ms"),
            std::string_view::npos);
}

TEST(ReplayingMaking, AnothersSessionOfTheCallersNameIsNotClosed) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  server.SwitchReplica();
  const auto other = *client->CreateSession({"a", 0, 0, {}});
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(session->Decode(0, kRow).ok());
    EXPECT_EQ(session->id().substr(0, 2), "a.");
    ASSERT_TRUE(client->CloseSession(session->id()).ok());
  }
  ASSERT_TRUE(session->Close().ok());
  EXPECT_TRUE(other->Refresh().ok());
}

}  // namespace
}  // namespace attnd::client
