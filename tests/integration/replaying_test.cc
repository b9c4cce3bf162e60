// The C++ client's sessions over the death of a real server.
#include "client/cpp/replaying_session.h"

#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

std::vector<float> Rows(uint64_t seed, int64_t rows) { return RandomRows(seed, rows, kTinyWidth); }

// The answers of a prompt and some tokens; `disturb` is called in the middle.
template <typename AnySession, typename Disturb>
std::vector<float> Play(AnySession& session, const Disturb& disturb) {
  std::vector<float> answers;
  for (const uint32_t layer : {kTinyLocal, kTinyGlobal}) {
    const auto prompt = session.Prefill(layer, Rows(layer, 100));
    EXPECT_TRUE(prompt.ok()) << prompt.status();
    answers.insert(answers.end(), prompt->output.begin(), prompt->output.end());
  }
  for (uint64_t token = 0; token < 20; ++token) {
    if (token == 10) {
      disturb();
    }
    for (const uint32_t layer : {kTinyLocal, kTinyGlobal}) {
      const auto answer = session.Decode(layer, Rows(1000 + 10 * token + layer, 1));
      EXPECT_TRUE(answer.ok()) << answer.status();
      answers.insert(answers.end(), answer->begin(), answer->end());
    }
  }
  return answers;
}

TEST(ReplayingTest, AKilledServerIsAPauseAndTheSameBits) {
  const std::string address = "127.0.0.1:" + std::to_string(FreePort());
  const std::vector<std::string> flags = TinyFlags({"--listen=" + address});
  auto server = std::make_unique<ReadyServer>(flags);
  const auto client = *client::Client::Connect(address);
  const std::vector<float> expected = Play(**client->CreateSession({}), [] {});
  const auto session = *client::ReplayingSession::Create(*client, {});
  const std::string before = client->Stats()->server_id();
  const std::vector<float> answers = Play(*session, [&] {
    server->Signal(SIGKILL);
    server->WaitExit();
    server = std::make_unique<ReadyServer>(flags);
  });
  EXPECT_TRUE(answers == expected) << "other bits";
  EXPECT_NE(client->Stats()->server_id(), before);
  EXPECT_EQ(session->history_bytes(), int64_t{2} * 120 * kTinyWidth * 4);
  EXPECT_GT(*session->Close(), 0);
}

// Sessions that leave room for the rows of one more in the local layer alone.
std::vector<std::unique_ptr<client::Session>> FillCache(client::Client& client) {
  std::vector<std::unique_ptr<client::Session>> sessions;
  do {
    sessions.push_back(*client.CreateSession({}));
  } while (sessions.back()->Prefill(kTinyLocal, Rows(0, 110)).ok());
  for (int i = 0; i < 2; ++i) {  // the one that did not fit, and the room of another
    EXPECT_TRUE(sessions.back()->Close().ok());
    sessions.pop_back();
  }
  return sessions;
}

TEST(ReplayingTest, ARecoveryThatFailsHalfWayIsBegunAgainByTheNextCall) {
  const std::string address = "127.0.0.1:" + std::to_string(FreePort());
  const std::vector<std::string> flags = {"--model=builtin:apex1-tiny", "--kv_cache_bytes=3MiB",
                                          "--listen=" + address};
  auto server = std::make_unique<ReadyServer>(flags);
  client::ClientOptions client_options;
  client_options.retry.arrival_wait = std::chrono::milliseconds(100);
  const auto client = *client::Client::Connect(address, client_options);
  const std::vector<float> expected = Play(**client->CreateSession({}), [] {});
  client::ReplayOptions options;
  options.recovery_timeout = std::chrono::milliseconds(1'000);
  const auto session = *client::ReplayingSession::Create(*client, {}, options);
  const std::string before = session->id();
  const std::vector<float> answers = Play(*session, [&] {
    server->Signal(SIGKILL);
    server->WaitExit();
    server = std::make_unique<ReadyServer>(flags);
    const auto others = FillCache(*client);
    const absl::Status full = session->Decode(kTinyLocal, Rows(0, 1)).status();
    EXPECT_EQ(client::ErrorOf(full).reason, "CACHE_FULL") << full;
    EXPECT_EQ(session->id(), before);
    EXPECT_EQ(session->length(kTinyLocal), 110);
    for (const auto& other : others) {
      EXPECT_TRUE(other->Close().ok());
    }
  });
  EXPECT_TRUE(answers == expected) << "other bits";
  EXPECT_EQ(client->ListSessions()->size(), 1u);
}

TEST(ReplayingTest, AnExpiredSessionIsMadeAnew) {
  const ReadyServer server(TinyFlags());
  const auto client = *client::Client::Connect(server.grpc());
  client::CreateOptions create;
  create.idle_ttl = std::chrono::milliseconds(200);
  const auto session = *client::ReplayingSession::Create(*client, create);
  const std::vector<float> expected = Play(**client->CreateSession({}), [] {});
  EXPECT_TRUE(Play(*session, [] { Pause(Seconds(1)); }) == expected) << "other bits";
}

}  // namespace
}  // namespace attnd
