// Lost answers, refusals and deadlines: what is repeated, and how.
#include <gtest/gtest.h>

#include <span>

#include "tests/client/fake_server.h"

namespace attnd::client {
namespace {

using grpc::StatusCode;

const std::vector<float> kThreeRows = {1, 2, 3, 4, 5, 6};
const std::vector<float> kThreeAnswers = {2, 4, 6, 8, 10, 12};

TEST(Retry, ALostAnswerIsAskedForAgainWithRewind) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  server.FailNext({StatusCode::UNAVAILABLE, "", true});
  const auto answer = session->Prefill(0, kThreeRows);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->output, kThreeAnswers);
  EXPECT_EQ(session->length(0), 3);
  EXPECT_EQ(server.Length(session->id(), 0), 3);
  ASSERT_EQ(server.prefills().size(), 2u);
  EXPECT_FALSE(server.prefills()[0].rewind());
  EXPECT_TRUE(server.prefills()[1].rewind());
  EXPECT_EQ(server.prefills()[1].position(), 0);
  EXPECT_EQ(server.prefills()[1].expected_length(), 3);
}

TEST(Retry, ALostDecodeIsAskedForAgainForEverySession) {
  FakeServer server;
  const auto client = server.Connect();
  const auto a = *client->CreateSession({});
  const auto b = *client->CreateSession({});
  server.FailNext({StatusCode::UNAVAILABLE, "", true});
  server.FailNext({StatusCode::UNAVAILABLE, "", false});
  const std::vector<DecodeItem> items = {{a.get(), 1}, {b.get(), 2}};
  const auto result = client->Decode(0, items, kThreeRows);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->all_ok());
  EXPECT_EQ(result->output, kThreeAnswers);
  EXPECT_EQ(a->length(0), 1);
  EXPECT_EQ(server.Length(b->id(), 0), 2);
  ASSERT_EQ(server.decodes().size(), 3u);
  EXPECT_EQ(server.decodes()[2].sequences(1).expected_length(), 2);
}

TEST(Retry, ARefusalIsFinal) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  server.FailNext({StatusCode::UNAVAILABLE, "DRAINING"});
  const auto answer = session->Prefill(0, kThreeRows);
  EXPECT_EQ(ErrorOf(answer.status()).reason, "DRAINING");
  EXPECT_EQ(server.prefills().size(), 1u);
  EXPECT_EQ(session->length(0), 0);
  ASSERT_TRUE(session->Prefill(0, kThreeRows).ok());
  EXPECT_FALSE(server.prefills()[1].rewind());  // nothing was uncertain
}

TEST(Retry, EndsAfterTheLastAttemptAndTheNextCallRewinds) {
  FakeServer server;
  ClientOptions options;
  options.retry.max_attempts = 3;
  const auto client = server.Connect(options);
  const auto session = *client->CreateSession({});
  server.FailNext({StatusCode::UNAVAILABLE, "", true});
  server.FailNext({StatusCode::UNAVAILABLE, "", false});
  server.FailNext({StatusCode::UNAVAILABLE, "", false});
  EXPECT_EQ(session->Prefill(0, kThreeRows).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server.prefills().size(), 3u);
  EXPECT_EQ(session->length(0), 0);
  // Fewer rows than the lost call had: the server is at 3, and is cut to 0.
  ASSERT_TRUE(session->Prefill(0, {kThreeRows.data(), 2}).ok());
  EXPECT_TRUE(server.prefills()[3].rewind());
  EXPECT_EQ(server.prefills()[3].expected_length(), 3);
  EXPECT_EQ(server.Length(session->id(), 0), 1);
}

TEST(Retry, ADeadlineIsNotRepeatedButTheNextCallRewinds) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  server.FailNext({StatusCode::DEADLINE_EXCEEDED, "", true});
  EXPECT_EQ(session->Decode(0, kThreeRows).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(server.decodes().size(), 1u);
  const auto answer = session->Decode(0, kThreeRows);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, kThreeAnswers);
  EXPECT_TRUE(server.decodes()[1].sequences(0).rewind());
  EXPECT_EQ(server.Length(session->id(), 0), 3);
}

TEST(Retry, ARefusalAfterALostCallLeavesTheLayerUncertain) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  server.FailNext({StatusCode::UNAVAILABLE, "", true});
  server.FailNext({StatusCode::RESOURCE_EXHAUSTED, "CACHE_FULL"});
  EXPECT_EQ(ErrorOf(session->Prefill(0, kThreeRows).status()).reason, "CACHE_FULL");
  ASSERT_TRUE(session->Prefill(0, kThreeRows).ok());
  EXPECT_TRUE(server.prefills()[2].rewind());
  EXPECT_EQ(session->length(0), 3);
}

// The server is at 3, the call before left it there or at 1: it is none of those.
TEST(Retry, TwoLostCallsOfDifferentSizesAreGotOver) {
  FakeServer server;
  ClientOptions options;
  options.retry.max_attempts = 1;
  const auto client = server.Connect(options);
  const auto session = *client->CreateSession({});
  const std::span<const float> row(kThreeRows.data(), 2);
  const std::span<const float> two(kThreeRows.data(), 4);
  for (const int layer : {0, 1}) {
    server.FailNext({StatusCode::UNAVAILABLE, "", true});
    EXPECT_FALSE(session->Prefill(layer, kThreeRows).ok());
    server.FailNext({StatusCode::UNAVAILABLE, "", false});
    EXPECT_FALSE(session->Prefill(layer, row).ok());
  }
  ASSERT_EQ(server.Length(session->id(), 0), 3);
  const auto prefilled = session->Prefill(0, two);
  ASSERT_TRUE(prefilled.ok()) << prefilled.status();
  EXPECT_EQ(prefilled->output, (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(server.Length(session->id(), 0), 2);
  const auto other = *client->CreateSession({});
  const std::vector<DecodeItem> items = {{other.get(), 1}, {session.get(), 2}};
  const auto decoded = client->Decode(1, items, kThreeRows);
  ASSERT_TRUE(decoded.ok() && decoded->all_ok());
  EXPECT_EQ(decoded->output, kThreeAnswers);
  EXPECT_EQ(session->length(1), 2);
  EXPECT_EQ(server.Length(session->id(), 1), 2);
  EXPECT_EQ(server.Length(other->id(), 1), 1);
}

TEST(Retry, ALayerThatAnotherCutIsLeftAlone) {
  FakeServer server;
  ClientOptions options;
  options.retry.max_attempts = 1;
  const auto client = server.Connect(options);
  const auto session = *client->CreateSession({});
  ASSERT_TRUE(session->Prefill(0, kThreeRows).ok());
  server.FailNext({StatusCode::UNAVAILABLE, "", false});
  EXPECT_FALSE(session->Prefill(0, kThreeRows).ok());
  const auto other = *client->AttachSession(session->id());
  ASSERT_TRUE(other->Rewind(1).ok());
  EXPECT_EQ(ErrorOf(session->Prefill(0, kThreeRows).status()).reason, "POSITION_MISMATCH");
  EXPECT_EQ(server.Length(session->id(), 0), 1);
}

TEST(Retry, WaitsForRoomOnlyWhenAsked) {
  FakeServer server;
  const auto patient_options = [] {
    ClientOptions options;
    options.retry.wait_when_advised = true;
    return options;
  }();
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  server.FailNext({StatusCode::RESOURCE_EXHAUSTED, "CACHE_FULL", false, 20});
  const Error error = ErrorOf(session->Prefill(0, kThreeRows).status());
  EXPECT_EQ(error.reason, "CACHE_FULL");
  EXPECT_EQ(error.retry_after, std::chrono::milliseconds(20));

  const auto patient = server.Connect(patient_options);
  const auto waiting = *patient->CreateSession({});
  server.FailNext({StatusCode::RESOURCE_EXHAUSTED, "CACHE_FULL", false, 20});
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(waiting->Prefill(0, kThreeRows).ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

TEST(Retry, FailureOfALaterChunkKeepsTheEarlierOnes) {
  FakeServer server;
  ClientOptions options;
  options.prefill_rows = 1;
  const auto client = server.Connect(options);
  const auto session = *client->CreateSession({});
  std::vector<float> answered;
  PrefillOptions prefill;
  prefill.on_chunk = [&](const PrefillResult& part) {
    answered.insert(answered.end(), part.output.begin(), part.output.end());
    if (answered.size() == 4) {
      server.FailNext({StatusCode::RESOURCE_EXHAUSTED, "CACHE_FULL"});
    }
  };
  EXPECT_FALSE(session->Prefill(0, kThreeRows, prefill).ok());
  EXPECT_EQ(answered, (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(session->length(0), 2);
}

TEST(Retry, ALostCreateMakesOneSession) {
  FakeServer server;
  const auto client = server.Connect();
  server.FailNext({StatusCode::UNAVAILABLE, "", true});
  const auto session = client->CreateSession({});
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(server.creates(), 2);
  EXPECT_EQ(client->ListSessions()->size(), 1u);
  EXPECT_EQ(ErrorOf(client->CreateSession({(*session)->id(), 0, 0, {}}).status()).reason,
            "SESSION_EXISTS");
}

TEST(Retry, ALostCloseIsClosed) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  server.FailNext({StatusCode::UNAVAILABLE, "", true});
  EXPECT_TRUE(session->Close().ok());
  EXPECT_EQ(ErrorOf(session->Close().status()).reason, "SESSION_CLOSED");
}

}  // namespace
}  // namespace attnd::client
