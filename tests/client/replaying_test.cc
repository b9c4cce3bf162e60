// Sessions that are made anew from what they were sent.
#include "client/cpp/replaying_session.h"

#include <gtest/gtest.h>

#include "tests/client/fake_server.h"
#include "tests/client/replaying_parts.h"

namespace attnd::client {
namespace {

using grpc::StatusCode;

TEST(Replaying, ALostSessionIsMadeAnewAndTheCallRepeated) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  EXPECT_EQ(session->history_bytes(), 40);
  server.LoseSessions();
  EXPECT_EQ(*session->Decode(0, kRow), kAnswer);
  EXPECT_EQ(server.Length(session->id(), 0), 5);
  EXPECT_EQ(server.Length(session->id(), 1), 1);
  EXPECT_EQ(session->length(0), 5);
  // The prompt, then the last step by itself: it can be repeated.
  const auto replayed = server.prefills();
  ASSERT_EQ(replayed.size(), 4u);
  EXPECT_EQ(replayed[1].hidden().shape(0), 3);
  EXPECT_EQ(replayed[2].position(), 3);
  EXPECT_EQ(replayed[2].output_rows(), v1::OUTPUT_ROWS_NONE);
  EXPECT_EQ(server.keys().back(), client->options().session_key);
}

TEST(Replaying, APrefillInSeveralCallsGoesOnWhereItWas) {
  FakeServer server;
  ClientOptions options;
  options.prefill_rows = 1;
  const auto client = server.Connect(options);
  const auto session = *ReplayingSession::Create(*client, {"a", 0, 0, {}});
  std::vector<float> parts;
  PrefillOptions prefill;
  prefill.on_chunk = [&](const PrefillResult& part) {
    parts.insert(parts.end(), part.output.begin(), part.output.end());
    if (parts.size() == 2) {
      server.LoseSessions();
    }
  };
  const auto answer = session->Prefill(0, kThreeRows, prefill);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->output, kThreeAnswers);
  EXPECT_EQ(answer->output_position, 0);
  EXPECT_EQ(parts, kThreeAnswers);
  EXPECT_EQ(server.Length(session->id(), 0), 3);
}

TEST(Replaying, ALossAfterALostAnswerAppendsOnce) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  for (const bool after : {true, false}) {
    for (int i = 0; i < 6; ++i) {  // more than a call's own tries
      server.FailNext({StatusCode::UNAVAILABLE, "", after});
    }
    const int64_t length = session->length(0);
    ASSERT_TRUE(session->Decode(0, kRow).ok());
    EXPECT_EQ(server.Length(session->id(), 0), length + 1);
  }
  server.FailNext({StatusCode::INTERNAL, "", true});  // a stream that was reset
  ASSERT_TRUE(session->Decode(0, kRow).ok());
  EXPECT_EQ(server.Length(session->id(), 0), 7);
}

TEST(Replaying, ASessionThatHasArrivedMeanwhileIsTaken) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  server.FailNext({StatusCode::NOT_FOUND, "SESSION_UNKNOWN"});
  ASSERT_TRUE(session->Decode(0, kRow).ok());
  EXPECT_EQ(server.Length(session->id(), 0), 5);
  EXPECT_EQ(server.prefills().size(), 1u) << "nothing was sent again";
}

TEST(Replaying, WhatIsLeftBehindIsNotTakenForTheSessionAndIsFreed) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client, {}, "");
  const std::string first = session->id();
  server.SwitchReplica();  // the first one lives, out of reach
  ASSERT_TRUE(session->Rewind(3).ok());
  ASSERT_TRUE(session->Decode(0, kRow).ok());  // another row in its place: as long as the copy
  const std::string second = session->id();
  server.SwitchReplica();
  EXPECT_EQ(server.Length(first, 0), 4);
  ASSERT_TRUE(session->Decode(0, kRow).ok());
  EXPECT_NE(session->id(), second);
  EXPECT_EQ(server.Length(session->id(), 0), 5);
  const auto left = *client->ListSessions();
  ASSERT_EQ(left.size(), 1u) << "the copy is closed";
  EXPECT_EQ(left[0].session_id(), session->id());
}

TEST(Replaying, ASessionThatIsNotWhereItWasIsMadeAnew) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  server.FailNext({StatusCode::FAILED_PRECONDITION, "POSITION_MISMATCH"});
  EXPECT_EQ(*session->Decode(0, kRow), kAnswer);
  EXPECT_EQ(session->id().substr(0, 2), "a.");
  EXPECT_EQ(server.Length(session->id(), 0), 5);
  EXPECT_EQ(server.Length(session->id(), 1), 1);
}

TEST(Replaying, AnEvictedSessionComesBackAndAClosedOneDoesNot) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  server.LoseSessions();
  server.FailNext({StatusCode::NOT_FOUND, "SESSION_EVICTED"});
  ASSERT_TRUE(session->Decode(0, kRow).ok());
  server.FailNext({StatusCode::NOT_FOUND, "SESSION_CLOSED"});
  EXPECT_EQ(ErrorOf(session->Decode(0, kRow).status()).reason, "SESSION_CLOSED");
}

TEST(Replaying, ARewindIsKept) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  ASSERT_TRUE(session->Rewind(2).ok());
  EXPECT_EQ(session->history_bytes(), 24);
  server.LoseSessions();
  ASSERT_TRUE(session->Rewind(1).ok());
  EXPECT_EQ(server.Length(session->id(), 0), 1);
  EXPECT_EQ(server.Length(session->id(), 1), 1);
}

TEST(Replaying, AFullServerIsWaitedForWhileItIsReplayed) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  server.LoseSessions();
  server.FailNext({StatusCode::NOT_FOUND, "SESSION_UNKNOWN"});
  server.FailNext({StatusCode::RESOURCE_EXHAUSTED, "TOO_MANY_SESSIONS", false, 10});
  ASSERT_TRUE(session->Decode(0, kRow).ok());
  EXPECT_EQ(server.Length(session->id(), 0), 5);
}

TEST(Replaying, TheLastErrorComesWhenTheTimeIsOver) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client, Within(200));
  for (int i = 0; i < 1000; ++i) {
    server.FailNext({StatusCode::UNAVAILABLE, "DRAINING"});
  }
  const absl::Status status = session->Decode(0, kRow).status();
  EXPECT_EQ(ErrorOf(status).reason, "DRAINING");
  EXPECT_NE(status.message().find("not mended within recovery_timeout, 200 ms"),
            std::string_view::npos);
  EXPECT_EQ(session->length(0), 4);
}

TEST(Replaying, PastItsLimitALossIsTheCallers) {
  FakeServer server;
  const auto client = server.Connect();
  ReplayOptions options;
  options.max_history_bytes = 30;
  const auto session = Filled(*client, options);
  EXPECT_FALSE(session->replayable());
  server.LoseSessions();
  EXPECT_EQ(ErrorOf(session->Decode(0, kRow).status()).reason, "SESSION_UNKNOWN");
  EXPECT_EQ(*session->Close(), 0);
}

// The loss, and the Create of its recovery, take these turns; what is ordered next is the replay's.
void LoseUntilTheReplay(FakeServer& server) {
  server.LoseSessions();
  server.FailNext({});
  server.FailNext({});
}

TEST(Replaying, ARecoveryThatRanOutOfTimeLeavesTheSessionAsItWas) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client, Within(200));
  LoseUntilTheReplay(server);
  for (int i = 0; i < 1000; ++i) {
    server.FailNext({StatusCode::RESOURCE_EXHAUSTED, "CACHE_FULL", false, 10});
  }
  EXPECT_EQ(ErrorOf(session->Decode(0, kRow).status()).reason, "CACHE_FULL");
  EXPECT_EQ(session->id(), "a");
  EXPECT_EQ(session->length(0), 4);
  EXPECT_EQ(session->length(1), 1);
  EXPECT_EQ(session->history_bytes(), 40);
  server.StopFailing();
  EXPECT_EQ(*session->Decode(0, kRow), kAnswer);
  EXPECT_EQ(server.decodes().back().sequences(0).position(), 4);
  EXPECT_EQ(server.Length(session->id(), 0), 5);
  EXPECT_EQ(server.Length(session->id(), 1), 1);
  EXPECT_EQ(OnlyOne(*client), session->id()) << "what was made in part is closed";
}

TEST(Replaying, ADeadlineInTheReplayLeavesTheSessionAsItWas) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  LoseUntilTheReplay(server);
  server.FailNext({StatusCode::DEADLINE_EXCEEDED, ""});
  EXPECT_EQ(session->Decode(1, kRow).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(session->length(1), 1);
  EXPECT_EQ(*session->Decode(1, kRow), kAnswer);
  EXPECT_EQ(server.decodes().back().sequences(0).position(), 1);
  EXPECT_EQ(server.Length(session->id(), 0), 4);
  EXPECT_EQ(server.Length(session->id(), 1), 2);
  EXPECT_EQ(OnlyOne(*client), session->id());
}

TEST(Replaying, AReplayGoesOnWhereItWas) {
  FakeServer server;
  ClientOptions options;
  options.retry.max_attempts = 1;
  const auto client = server.Connect(options);
  const auto session = Filled(*client);
  LoseUntilTheReplay(server);
  server.FailNext({});                                   // the first rows
  server.FailNext({StatusCode::UNAVAILABLE, "", true});  // the last step, whose answer is lost
  server.FailNext({StatusCode::RESOURCE_EXHAUSTED, "CACHE_FULL", false, 10});
  EXPECT_EQ(*session->Decode(0, kRow), kAnswer);
  EXPECT_EQ(server.creates(), 2);
  EXPECT_EQ(server.Length(session->id(), 0), 5);
  EXPECT_EQ(server.Length(session->id(), 1), 1);
  const auto sent = server.prefills();
  ASSERT_EQ(sent.size(), 6u);
  EXPECT_EQ(sent[1].position(), 0);
  for (const size_t i : {2u, 3u, 4u}) {
    EXPECT_EQ(sent[i].position(), 3);
  }
}

TEST(Replaying, ASessionThatIsLostInItsReplayIsMadeOnceMore) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  LoseUntilTheReplay(server);
  server.FailNext({});
  server.FailNext({StatusCode::NOT_FOUND, "SESSION_EVICTED"});
  EXPECT_EQ(*session->Decode(0, kRow), kAnswer);
  EXPECT_EQ(server.creates(), 3);
  EXPECT_EQ(server.Length(session->id(), 0), 5);
  EXPECT_EQ(OnlyOne(*client), session->id());
}

TEST(Replaying, ARewindOfASessionThatIsNotWhereItWasMakesItAnew) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  ASSERT_TRUE((*client->AttachSession("a"))->Rewind(1).ok());
  ASSERT_TRUE(session->Rewind(3).ok());
  EXPECT_NE(session->id(), "a");
  EXPECT_EQ(session->length(0), 3);
  EXPECT_EQ(session->length(1), 1);
  EXPECT_EQ(server.Length(session->id(), 0), 3);
  EXPECT_EQ(session->history_bytes(), 32);
  EXPECT_EQ(*session->Decode(0, kRow), kAnswer);
  EXPECT_EQ(server.decodes().back().sequences(0).position(), 3);
}

TEST(Replaying, RowsOfAStepThatFailedDoNotOutliveARewind) {
  for (const int64_t position : {4, 5, 9}) {
    FakeServer server;
    const auto client = server.Connect();
    const auto session = Filled(*client);
    server.FailNext({StatusCode::DEADLINE_EXCEEDED, "", true});
    EXPECT_FALSE(session->Decode(0, kRow).ok());
    EXPECT_EQ(server.Length("a", 0), 5);
    ASSERT_TRUE(session->Rewind(position).ok());
    EXPECT_EQ(session->length(0), 4);
    EXPECT_EQ(server.Length(session->id(), 0), 4);
    EXPECT_EQ(*session->Decode(0, kRow), kAnswer);
    EXPECT_EQ(server.Length(session->id(), 0), 5);
    EXPECT_TRUE(session->replayable());
  }
}

TEST(Replaying, AFoundSessionIsTakenWithTheDoubtOfItsLastStep) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  server.FailNext({StatusCode::DEADLINE_EXCEEDED, "", true});
  EXPECT_FALSE(session->Decode(0, kRow).ok());
  server.FailNext({StatusCode::NOT_FOUND, "SESSION_UNKNOWN"});
  EXPECT_EQ(*session->Decode(0, kRow), kAnswer);
  EXPECT_EQ(session->id(), "a");
  EXPECT_EQ(server.Length("a", 0), 5);
  EXPECT_EQ(server.creates(), 1);
}

TEST(Replaying, AFoundSessionThatIsNotWhereItWasIsMadeAnew) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  ASSERT_TRUE((*client->AttachSession("a"))->Rewind(1).ok());
  server.FailNext({StatusCode::NOT_FOUND, "SESSION_UNKNOWN"});
  EXPECT_EQ(*session->Decode(0, kRow), kAnswer);
  EXPECT_NE(session->id(), "a");
  EXPECT_EQ(server.Length(session->id(), 0), 5);
}

TEST(Replaying, AClosedSessionIsNotMadeAnew) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client);
  ASSERT_TRUE(session->Close().ok());
  server.SwitchReplica();
  EXPECT_EQ(ErrorOf(session->Decode(0, kRow).status()).reason, "SESSION_UNKNOWN");
  EXPECT_EQ(ErrorOf(session->Rewind(1)).reason, "SESSION_UNKNOWN");
  EXPECT_TRUE(client->ListSessions()->empty());
}

TEST(Replaying, CloseFreesWhatIsLeftBehindToo) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Filled(*client, {}, "");
  server.SwitchReplica();
  ASSERT_TRUE(session->Decode(0, kRow).ok());
  server.SwitchReplica();
  EXPECT_EQ(*session->Close(), 0) << "it is out of reach";
  EXPECT_TRUE(client->ListSessions()->empty());
}

}  // namespace
}  // namespace attnd::client
