// Fork, Export and Import, moves between servers, and waiting for them.
#include "client/cpp/move.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/client/fake_server.h"

namespace attnd::client {
namespace {

using std::chrono::milliseconds;

const std::vector<float> kThreeRows = {1, 2, 3, 4, 5, 6};
const std::vector<float> kThreeAnswers = {2, 4, 6, 8, 10, 12};

std::unique_ptr<Session> Prefilled(Client& client, const std::string& id) {
  auto session = *client.CreateSession({id, 0, 0, {}});
  EXPECT_TRUE(session->Prefill(0, kThreeRows).ok());
  return session;
}

ChunkSink Into(std::vector<v1::SessionChunk>* parts) {
  return [parts](const v1::SessionChunk& chunk) {
    parts->push_back(chunk);
    return absl::OkStatus();
  };
}

// Ends the session's move once `seen` is true.
std::thread EndMoveWhen(FakeServer* server, const std::string& session,
                        std::function<bool()> seen) {
  return std::thread([server, session, seen = std::move(seen)] {
    while (!seen()) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    server->SetMoving(session, false);
  });
}

TEST(Fork, ContinuesOnItsOwn) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Prefilled(*client, "a");
  const auto fork = session->Fork({"b", 2, 0, {}});
  ASSERT_TRUE(fork.ok()) << fork.status();
  EXPECT_EQ((*fork)->length(0), 2);
  ASSERT_TRUE((*fork)->Prefill(0, kThreeRows).ok());
  EXPECT_EQ(server.Length("b", 0), 5);
  EXPECT_EQ(server.Length("a", 0), 3);
  EXPECT_EQ((*client->ForkSession("a"))->id().size(), 32u);
  EXPECT_EQ(ErrorOf(client->ForkSession("a", {"b", 0, 0, {}}).status()).reason, "SESSION_EXISTS");
}

TEST(Fork, WhoseAnswerWasLostIsFound) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Prefilled(*client, "a");
  server.FailNext({grpc::StatusCode::UNAVAILABLE, "", true});
  const auto fork = session->Fork({});
  ASSERT_TRUE(fork.ok()) << fork.status();
  EXPECT_EQ((*fork)->length(0), 3);
  EXPECT_EQ(client->ListSessions()->size(), 2u);
}

TEST(Export, IsRepeatedOnlyBeforeItsFirstPart) {
  FakeServer server;
  const auto client = server.Connect();
  Prefilled(*client, "a");
  std::vector<v1::SessionChunk> parts;
  server.FailNext({grpc::StatusCode::UNAVAILABLE, ""});
  ASSERT_TRUE(client->ExportSession("a", {}, Into(&parts)).ok());
  EXPECT_EQ(parts.size(), 6u);
  FakeExport how;
  how.cut_after = 3;
  how.end = {grpc::StatusCode::UNAVAILABLE, "the connection broke"};
  server.SetExport(how);
  EXPECT_EQ(client->ExportSession("a", {}, Into(&parts)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(parts.size(), 9u);
  EXPECT_EQ(server.exports(), 2);
}

TEST(Export, EndsWithTheSinksError) {
  FakeServer server;
  const auto client = server.Connect();
  Prefilled(*client, "a");
  const absl::Status status =
      client->ExportSession("a", {true, {}}, [](const v1::SessionChunk& chunk) {
        return chunk.has_header() ? absl::OkStatus() : absl::AbortedError("full");
      });
  EXPECT_EQ(status, absl::AbortedError("full"));
  EXPECT_FALSE(server.Moving("a"));
}

TEST(Export, DoesNotWaitForEverForASilentServer) {
  FakeServer server;
  ClientOptions options;
  options.deadline = milliseconds(100);
  const auto client = server.Connect(options);
  Prefilled(*client, "a");
  FakeExport how;
  how.cut_after = 2;
  how.silent = true;
  server.SetExport(how);
  std::vector<v1::SessionChunk> parts;
  const absl::Status status = client->ExportSession("a", {}, Into(&parts));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(parts.size(), 2u);
}

TEST(Import, EndsWithTheSourcesError) {
  FakeServer server;
  const auto client = server.Connect();
  Prefilled(*client, "a");
  std::vector<v1::SessionChunk> parts;
  ASSERT_TRUE(client->ExportSession("a", {}, Into(&parts)).ok());
  size_t next = 0;
  const auto session = client->ImportSession([&](v1::SessionChunk* chunk) -> absl::StatusOr<bool> {
    if (next == 2) {
      return absl::AbortedError("unreadable");
    }
    *chunk = parts[next++];
    return true;
  });
  EXPECT_EQ(session.status(), absl::AbortedError("unreadable"));
  EXPECT_EQ(client->ListSessions()->size(), 1u);
}

TEST(Move, TakesTheSessionUnderItsAffinityKey) {
  FakeServer source, target;
  FakeExport how;
  how.affinity_key = "worker-7";
  source.SetExport(how);
  const auto from = source.Connect();
  const auto to = target.Connect();
  Prefilled(*from, "a");
  int64_t last = 0;
  const auto moved = MoveSession(*from, "a", *to, [&last](int64_t done, int64_t) { last = done; });
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ((*moved)->length(0), 3);
  EXPECT_EQ(last, 1000);
  EXPECT_EQ(target.keys().at(0), "worker-7");
  EXPECT_TRUE(from->ListSessions()->empty());
}

TEST(Move, ThatIsRefusedLeavesTheSessionOpen) {
  FakeServer source, target;
  const auto from = source.Connect();
  const auto to = target.Connect();
  const auto session = Prefilled(*from, "a");
  for (const int64_t bytes : {10, 1000, 1 << 20}) {
    FakeExport how;
    how.data_bytes = bytes;
    source.SetExport(how);
    target.FailNext({grpc::StatusCode::FAILED_PRECONDITION, "MODEL_MISMATCH"});
    EXPECT_EQ(ErrorOf(MoveSession(*from, "a", *to).status()).reason, "MODEL_MISMATCH");
    EXPECT_FALSE(source.Moving("a"));
  }
  *to->CreateSession({"a", 0, 0, {}});
  EXPECT_EQ(ErrorOf(MoveSession(*from, "a", *to).status()).reason, "SESSION_EXISTS");
  EXPECT_FALSE(source.Moving("a"));
  EXPECT_TRUE(session->Prefill(0, kThreeRows).ok());
}

TEST(Move, WhoseLastAnswerWasLostHasHappened) {
  FakeServer source, target;
  const auto from = source.Connect();
  const auto to = target.Connect();
  Prefilled(*from, "a");
  FakeExport how;
  how.import_answer_lost = true;
  target.SetExport(how);
  const auto moved = MoveSession(*from, "a", *to);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_TRUE(from->ListSessions()->empty());
  EXPECT_EQ(to->ListSessions()->size(), 1u);
}

// A balancer may send the import, or the question that follows it, to the server of the session.
TEST(Move, ThatIsLedBackToItsServerClosesNothing) {
  FakeServer source, target;
  const auto from = source.Connect();
  const auto to = target.Connect();
  Prefilled(*from, "a");
  const absl::Status same = MoveSession(*from, "a", *from).status();
  EXPECT_EQ(ErrorOf(same).reason, "SESSION_EXISTS");
  EXPECT_NE(std::string(same.message()).find("led back"), std::string::npos) << same;
  EXPECT_EQ(source.Length("a", 0), 3);
  EXPECT_FALSE(source.Moving("a"));

  Prefilled(*to, "a");
  for (const std::string& id : {source.server_id(), std::string()}) {
    target.set_server_id(id);
    target.FailNext({grpc::StatusCode::UNAVAILABLE, ""});
    EXPECT_EQ(MoveSession(*from, "a", *to).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(from->ListSessions()->size(), 1u);
    EXPECT_FALSE(source.Moving("a"));
  }
  target.LoseSessions();
  EXPECT_EQ(MoveSession(*from, "a", *to).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(from->ListSessions()->size(), 1u);
}

TEST(Move, WhoseAnswerWasLostIsNotTakenForAnOlderSessionOfThatName) {
  FakeServer source, target;
  const auto from = source.Connect();
  const auto to = target.Connect();
  Prefilled(*from, "a");
  *to->CreateSession({"a", 0, 0, {}});
  target.FailNext({grpc::StatusCode::UNAVAILABLE, ""});
  EXPECT_EQ(MoveSession(*from, "a", *to).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(source.Length("a", 0), 3);
  EXPECT_FALSE(source.Moving("a"));
}

TEST(Move, WhoseExportBreaksLeavesTheSessionOpen) {
  FakeServer source, target;
  const auto from = source.Connect();
  const auto to = target.Connect();
  const auto session = Prefilled(*from, "a");
  FakeExport how;
  how.cut_after = 3;
  for (const grpc::StatusCode code : {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::OK}) {
    how.end = {code, "the connection broke"};
    source.SetExport(how);
    EXPECT_FALSE(MoveSession(*from, "a", *to).ok());
    EXPECT_FALSE(source.Moving("a"));
  }
  EXPECT_TRUE(session->Prefill(0, kThreeRows).ok());
}

TEST(Move, OfAnotherIsNotCancelledByARefusedOne) {
  FakeServer source, target;
  const auto from = source.Connect();
  Prefilled(*from, "a");
  source.SetMoving("a", true);
  source.FailNext({grpc::StatusCode::PERMISSION_DENIED, "NOT_ALLOWED"});
  EXPECT_FALSE(MoveSession(*from, "a", *target.Connect()).ok());
  EXPECT_TRUE(source.Moving("a"));
}

TEST(Move, IsWaitedFor) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Prefilled(*client, "a");
  server.SetMoving("a", true);
  // More tries than other failures have.
  std::thread ends = EndMoveWhen(&server, "a", [&] { return server.prefills().size() > 9; });
  EXPECT_TRUE(session->Prefill(0, kThreeRows).ok());
  ends.join();
  EXPECT_FALSE(server.prefills().back().rewind());  // a refusal leaves nothing uncertain
}

TEST(Move, IsWaitedForOnlySoLong) {
  FakeServer server;
  ClientOptions options;
  options.retry.move_wait = milliseconds(50);
  const auto client = server.Connect(options);
  const auto session = Prefilled(*client, "a");
  server.SetMoving("a", true);
  EXPECT_EQ(ErrorOf(session->Prefill(0, kThreeRows).status()).reason, "SESSION_MOVING");
  EXPECT_EQ(ErrorOf(session->Decode(0, kThreeRows).status()).reason, "SESSION_MOVING");
  EXPECT_EQ(session->length(0), 3);
}

TEST(Move, OfOneSessionHoldsUpThatPartOfADecode) {
  FakeServer server;
  const auto client = server.Connect();
  const auto a = *client->CreateSession({});
  const auto b = *client->CreateSession({});
  const auto c = *client->CreateSession({});
  server.SetMoving(b->id(), true);
  std::thread ends = EndMoveWhen(&server, b->id(), [&] { return server.decodes().size() > 1; });
  const std::vector<DecodeItem> items = {{a.get(), 1}, {b.get(), 1}, {c.get(), 1}};
  const auto result = client->Decode(0, items, kThreeRows);
  ends.join();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->all_ok());
  EXPECT_EQ(result->output, kThreeAnswers);
  EXPECT_EQ(b->length(0), 1);
  EXPECT_EQ(server.decodes()[1].sequences_size(), 1);
}

TEST(Move, OfOneSessionThatTakesTooLongFailsThatPartOfADecode) {
  FakeServer server;
  ClientOptions options;
  options.retry.move_wait = milliseconds(50);
  const auto client = server.Connect(options);
  const auto a = *client->CreateSession({});
  const auto b = *client->CreateSession({});
  server.SetMoving(a->id(), true);
  const std::vector<DecodeItem> items = {{a.get(), 2}, {b.get(), 1}};
  const auto result = client->Decode(0, items, kThreeRows);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ErrorOf(result->statuses[0]).reason, "SESSION_MOVING");
  EXPECT_TRUE(result->statuses[1].ok());
  EXPECT_EQ(a->length(0), 0);
  EXPECT_EQ(b->length(0), 1);
}

TEST(Move, ToAnotherReplicaIsWaitedForThere) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = Prefilled(*client, "a");
  FakeServer elsewhere;  // holds the session while it is on its way
  ASSERT_TRUE(MoveSession(*client, "a", *elsewhere.Connect()).ok());
  EXPECT_EQ(ErrorOf(session->Prefill(0, kThreeRows).status()).reason, "SESSION_UNKNOWN");
  server.set_server_id("fake-2");
  std::thread arrives([&] {
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_TRUE(MoveSession(*elsewhere.Connect(), "a", *server.Connect()).ok());
  });
  EXPECT_TRUE(session->Prefill(0, kThreeRows).ok());
  arrives.join();
  EXPECT_EQ(server.Length("a", 0), 6);
}

}  // namespace
}  // namespace attnd::client
