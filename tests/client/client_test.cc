// Sessions and calls as a program uses them, when nothing fails.
#include "client/cpp/client.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/client/fake_server.h"

namespace attnd::client {
namespace {

// n rows with values that tell them apart.
std::vector<float> Rows(int64_t n) {
  std::vector<float> rows(static_cast<size_t>(n * FakeServer::kWidth));
  std::iota(rows.begin(), rows.end(), 1.0f);
  return rows;
}

std::vector<float> Doubled(std::vector<float> rows) {
  for (float& value : rows) {
    value *= 2;
  }
  return rows;
}

TEST(Connect, SaysWhereNoServerAnswers) {
  ClientOptions options;
  options.connect_timeout = std::chrono::milliseconds(200);
  const auto client = Client::Connect("127.0.0.1:1", options);
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(client.status().message()).find("127.0.0.1:1"), std::string::npos);
}

TEST(Connect, RefusesOptionsOutOfRange) {
  ClientOptions options;
  options.retry.max_attempts = 0;
  EXPECT_EQ(Client::Connect("127.0.0.1:1", options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options = ClientOptions();
  options.max_message_bytes = 1000;
  EXPECT_EQ(Client::Connect("127.0.0.1:1", options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options = ClientOptions();
  options.session_key = "worker\n7";  // not what metadata may hold
  EXPECT_EQ(Client::Connect("127.0.0.1:1", options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(List, EndsWhereTheServerRepeatsItself) {
  FakeServer server;
  const auto client = server.Connect();
  *client->CreateSession({});
  for (const auto pages : {FakeServer::Pages::kRepeat, FakeServer::Pages::kEmpty}) {
    server.set_pages(pages);
    EXPECT_EQ(client->ListSessions().status().code(), absl::StatusCode::kInternal);
  }
}

TEST(Session, TracksTheLengthOfEachLayer) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  EXPECT_EQ(session->num_layers(), FakeServer::kLayers);
  const auto answer = session->Prefill(1, Rows(5));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->output, Doubled(Rows(5)));
  EXPECT_EQ(answer->output_position, 0);
  EXPECT_EQ(session->length(1), 5);
  EXPECT_EQ(session->length(0), 0);
  ASSERT_TRUE(session->Decode(1, Rows(2)).ok());
  EXPECT_EQ(session->length(1), 7);
  EXPECT_EQ(server.decodes()[0].sequences(0).position(), 5);
  EXPECT_EQ(server.decodes()[0].sequences(0).num_tokens(), 2u);
}

TEST(Session, CutsALongPrefillIntoCallsOfTheRowsAskedFor) {
  FakeServer server;
  ClientOptions options;
  options.prefill_rows = 4;
  const auto client = server.Connect(options);
  const auto session = *client->CreateSession({});
  int chunks = 0;
  PrefillOptions prefill;
  prefill.on_chunk = [&](const PrefillResult&) { ++chunks; };
  const auto answer = session->Prefill(0, Rows(10), prefill);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->output, Doubled(Rows(10)));
  EXPECT_EQ(answer->timing.compute_ns, 3000);
  EXPECT_EQ(chunks, 3);
  ASSERT_EQ(server.prefills().size(), 3u);
  EXPECT_EQ(server.prefills()[2].position(), 8);
  EXPECT_EQ(server.prefills()[2].hidden().shape(0), 2);
}

TEST(Session, CutsALongPrefillToTheMessageLimit) {
  FakeServer server(256 << 10);
  ClientOptions options;
  options.prefill_rows = 0;
  const auto client = server.Connect(options);
  const auto session = *client->CreateSession({});
  const int64_t fit = ((256 << 10) - (64 << 10)) / 8;
  const auto answer = session->Prefill(0, Rows(fit + 1));
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(server.prefills().size(), 2u);
  EXPECT_EQ(server.prefills()[0].hidden().shape(0), fit);
}

TEST(Session, AsksForTheLastRowOnlyInTheLastCall) {
  FakeServer server;
  ClientOptions options;
  options.prefill_rows = 4;
  const auto client = server.Connect(options);
  const auto session = *client->CreateSession({});
  const auto answer = session->Prefill(0, Rows(10), {OutputRows::kLast, nullptr});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->output, (std::vector<float>{38, 40}));
  EXPECT_EQ(answer->output_position, 9);
  EXPECT_EQ(server.prefills()[0].output_rows(), v1::OUTPUT_ROWS_NONE);
  EXPECT_EQ(server.prefills()[2].output_rows(), v1::OUTPUT_ROWS_LAST);
}

TEST(Session, RefusesAWrongShapeOrLayerBeforeItSendsAnything) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  EXPECT_EQ(ErrorOf(session->Prefill(0, std::vector<float>(3)).status()).reason, "BAD_TENSOR");
  EXPECT_EQ(ErrorOf(session->Prefill(0, {}).status()).reason, "BAD_TENSOR");
  EXPECT_EQ(ErrorOf(session->Prefill(3, Rows(1)).status()).reason, "BAD_LAYER");
  EXPECT_EQ(ErrorOf(session->Decode(-1, Rows(1)).status()).reason, "BAD_LAYER");
  EXPECT_TRUE(server.prefills().empty());
  EXPECT_TRUE(server.decodes().empty());
}

TEST(Session, RewindAndAttachTakeTheServersLengths) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({"mine", 0, 0, {}});
  ASSERT_TRUE(session->Prefill(0, Rows(5)).ok());
  ASSERT_TRUE(session->Rewind(3).ok());
  EXPECT_EQ(session->length(0), 3);
  const auto attached = client->AttachSession("mine");
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_EQ((*attached)->length(0), 3);
  EXPECT_EQ(ErrorOf(client->AttachSession("other").status()).reason, "SESSION_UNKNOWN");
}

TEST(Client, DecodesManySessionsAndReportsEachOutcome) {
  FakeServer server;
  const auto client = server.Connect();
  const auto a = *client->CreateSession({"a", 0, 0, {}});
  const auto b = *client->CreateSession({"b", 0, 0, {}});
  ASSERT_EQ(*b->Close(), 4096);
  const std::vector<DecodeItem> items = {{a.get(), 2}, {b.get(), 1}};
  const auto result = client->Decode(0, items, Rows(3));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->all_ok());
  EXPECT_TRUE(result->statuses[0].ok());
  EXPECT_EQ(ErrorOf(result->statuses[1]).reason, "SESSION_UNKNOWN");
  EXPECT_EQ(a->length(0), 2);
  EXPECT_EQ(b->length(0), 0);
  EXPECT_EQ(ErrorOf(client->Decode(0, {}, Rows(1)).status()).reason, "BAD_BATCH");
}

TEST(Client, ListsEveryPage) {
  FakeServer server;
  const auto client = server.Connect();
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(client->CreateSession({id, 0, 0, {}}).ok());
  }
  const auto sessions = client->ListSessions();
  ASSERT_TRUE(sessions.ok()) << sessions.status();
  ASSERT_EQ(sessions->size(), 3u);
  EXPECT_EQ((*sessions)[2].session_id(), "c");
  EXPECT_EQ(client->Stats()->sessions(), 3);
  EXPECT_EQ(*client->Drain(), 3);
}

TEST(Client, SendsOneAffinityKeyOnEveryCall) {
  FakeServer server;
  ClientOptions options;
  options.session_key = "worker-7";
  const auto client = server.Connect(options);
  const auto session = *client->CreateSession({});
  ASSERT_TRUE(session->Prefill(0, Rows(1)).ok());
  ASSERT_TRUE(session->Decode(0, Rows(1)).ok());
  EXPECT_EQ(server.keys(), (std::vector<std::string>{"worker-7", "worker-7", "worker-7"}));
  EXPECT_EQ(server.Connect()->options().session_key.size(), 32u);
  EXPECT_NE(server.Connect()->options().session_key, server.Connect()->options().session_key);
}

}  // namespace
}  // namespace attnd::client
