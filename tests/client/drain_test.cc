// A server that is emptied, where the balancer is not what it should be.
#include "client/cpp/drain.h"

#include <gtest/gtest.h>

#include "tests/client/fake_server.h"

namespace attnd::client {
namespace {

using std::chrono::milliseconds;
using Outcome = DrainedSession::Outcome;

constexpr milliseconds kNone{0};

// One that holds session "a" of key "k", and the server that a balancer leads to.
class Draining : public testing::Test {
 protected:
  Draining() : from_(source_.Connect()), via_(target_.Connect()) {
    FakeExport how;
    how.affinity_key = "k";
    source_.SetExport(how);
    target_.SetExport(how);
    EXPECT_TRUE(Put(*from_, 3).ok());
  }

  static absl::Status Put(Client& client, size_t rows) {
    const auto session = client.CreateSession({"a", 0, 0, {}});
    return session.ok() ? (*session)->Prefill(0, std::vector<float>(2 * rows)).status()
                        : session.status();
  }

  // What became of the session.
  DrainedSession Moved(Drain& drain) {
    DrainedSession result;
    const auto left = drain.Left();
    EXPECT_EQ(left->size(), 1u);
    drain.Move(left->at(0), {}, [&](const DrainedSession& session) { result = session; });
    return result;
  }

  FakeServer source_, target_;
  std::unique_ptr<Client> from_, via_;
};

TEST_F(Draining, MovesToWhereTheKeyLeads) {
  Drain drain(*from_, *via_, {kNone, milliseconds(30)});
  ASSERT_TRUE(drain.Begin().ok());
  EXPECT_EQ(source_.drains(), 1);
  EXPECT_EQ(*drain.Wait("k"), milliseconds(30));
  EXPECT_LE(*drain.Wait("k"), milliseconds(30));
  EXPECT_EQ(*drain.Wait("other"), milliseconds(30));
  const DrainedSession session = Moved(drain);
  EXPECT_EQ(session.outcome, Outcome::kMoved) << session.status;
  EXPECT_EQ(session.server, target_.server_id());
  EXPECT_TRUE(drain.Left()->empty());
}

TEST_F(Draining, BeginsOnlyWhereAnotherServerAnswers) {
  Drain alone(*from_, *from_);
  EXPECT_EQ(alone.Begin().code(), absl::StatusCode::kFailedPrecondition);
  FakeServer* gone = new FakeServer;
  ClientOptions options;
  options.deadline = milliseconds(50);
  const auto nowhere = gone->Connect(options);
  delete gone;
  Drain lost(*from_, *nowhere);
  EXPECT_EQ(lost.Begin().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(source_.drains(), 0);
  Drain forced(*from_, *from_, {kNone, kNone, true});
  EXPECT_TRUE(forced.Begin().ok());
  EXPECT_EQ(source_.drains(), 1);
  EXPECT_EQ(forced.Wait("k").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(Draining, ClosesNothingWhereTheBalancerLeadsBack) {
  Drain drain(*from_, *via_, {kNone, kNone});
  ASSERT_TRUE(drain.Begin().ok());
  ASSERT_EQ(*drain.Wait("k"), kNone);
  ASSERT_TRUE(Put(*via_, 5).ok());
  target_.set_server_id(source_.server_id());
  EXPECT_EQ(Moved(drain).outcome, Outcome::kFailed);
  target_.set_server_id("");
  EXPECT_EQ(Moved(drain).outcome, Outcome::kFailed);
  EXPECT_EQ(source_.Length("a", 0), 3);
  EXPECT_FALSE(source_.Moving("a"));
  target_.set_server_id("another");
  EXPECT_EQ(Moved(drain).outcome, Outcome::kWasThere);
}

TEST_F(Draining, KeepsWhatIsAheadOfItsCopy) {
  Drain drain(*from_, *via_, {kNone, kNone});
  ASSERT_TRUE(drain.Begin().ok());
  ASSERT_TRUE(Put(*via_, 2).ok());
  EXPECT_EQ(Moved(drain).outcome, Outcome::kFailed);
  EXPECT_EQ(source_.Length("a", 0), 3);
}

TEST_F(Draining, StoppedLeavesTheSessionOpen) {
  Drain drain(*from_, *via_, {kNone, kNone});
  ASSERT_TRUE(drain.Begin().ok());
  DrainedSession result;
  const auto left = *drain.Left();
  drain.Move(
      left[0], [&](int64_t, int64_t) { drain.Stop(); },
      [&](const DrainedSession& session) { result = session; });
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(source_.Length("a", 0), 3);
  EXPECT_FALSE(source_.Moving("a"));
}

}  // namespace
}  // namespace attnd::client
