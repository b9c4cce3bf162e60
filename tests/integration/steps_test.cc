// The stream of steps: bounded, cancellable, each step with an outcome of its own.
#include <thread>

#include "tests/integration/long_prefill.h"
#include "tests/integration/metrics_text.h"
#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

constexpr int kMostUnanswered = 4;

class StepsTest : public testing::Test {
 protected:
  v1::StepRequest Decode(uint64_t id, const std::string& session, int64_t position) {
    return StepOf(id, DecodeOf(kSlowLayer, {{session, position}}, SlowRows(id, 1)));
  }

  TempDir dir_;
  ReadyServer server_{[this] {
    std::vector<std::string> flags = SlowModelFlags(dir_);
    flags.push_back("--max_stream_steps=" + std::to_string(kMostUnanswered));
    return flags;
  }()};
  Wire wire_{server_.grpc()};
};

TEST_F(StepsTest, AStreamWithTooManyUnansweredIsNotReadFurther) {
  const std::string session = wire_.Create();
  StepsCall steps(wire_);
  v1::StepRequest first =
      StepOf(0, PrefillOf(session, kSlowLayer, 0, SlowRows(1, kSlowMaxLength / 2)));
  first.mutable_timeout()->set_seconds(2);
  ASSERT_TRUE(steps.Write(first));
  ASSERT_TRUE(WaitRunning(wire_));
  constexpr uint64_t kMore = 20;
  for (uint64_t id = 1; id <= kMore; ++id) {
    ASSERT_TRUE(steps.Write(Decode(id, session, static_cast<int64_t>(id) - 1)));
  }
  ASSERT_TRUE(WaitQueued(wire_, kMostUnanswered - 1));
  for (int look = 0; look < 50; ++look) {
    Pause(Seconds(0.005));
    ASSERT_LE(wire_.Stats().queued_steps(), kMostUnanswered - 1);
  }
  // The first runs out of time; then all the others run, in order.
  v1::StepResponse response = steps.Next();
  EXPECT_EQ(response.step_id(), 0u);
  EXPECT_EQ(StatusText(response.status()), "DEADLINE_EXCEEDED STEP_TIMEOUT");
  for (uint64_t id = 1; id <= kMore; ++id) {
    response = steps.Next();
    EXPECT_EQ(response.step_id(), id);
    EXPECT_EQ(StatusText(response.status()), "OK") << response.status().message();
  }
  steps.HalfClose();
  EXPECT_TRUE(steps.Finish().ok());
}

TEST_F(StepsTest, CancelStepId) {
  const std::string session = wire_.Create();
  StepsCall steps(wire_);
  ASSERT_TRUE(steps.Write(StepOf(5, PrefillOf(session, kSlowLayer, 0, SlowRows(1, 30'000)))));
  ASSERT_TRUE(steps.Write(Decode(6, session, 30'000)));
  ASSERT_TRUE(WaitQueued(wire_, 1));
  ASSERT_TRUE(WaitRunning(wire_));
  ASSERT_TRUE(steps.Write(CancelOf(6)));
  v1::StepResponse response = steps.Next();
  EXPECT_EQ(response.step_id(), 6u) << "a queued one";
  EXPECT_EQ(StatusText(response.status()), "CANCELLED STEP_CANCELLED");
  ASSERT_TRUE(steps.Write(CancelOf(777)));  // there is none: nothing happens
  ASSERT_TRUE(steps.Write(CancelOf(5)));
  response = steps.Next();
  EXPECT_EQ(response.step_id(), 5u) << "a running one";
  EXPECT_EQ(StatusText(response.status()), "CANCELLED STEP_CANCELLED");
  ASSERT_TRUE(steps.Write(CancelOf(5)));  // answered already
  ASSERT_TRUE(steps.Write(Decode(8, session, 0)));
  response = steps.Next();
  EXPECT_EQ(response.step_id(), 8u) << "cancels have no answer of their own";
  EXPECT_EQ(StatusText(response.status()), "OK");
  EXPECT_EQ(wire_.Length(session, kSlowLayer), 1);
}

TEST_F(StepsTest, EachFailsAlone) {
  const std::string session = wire_.Create();
  StepsCall steps(wire_);
  v1::StepRequest no_kind;
  no_kind.set_step_id(1);
  ASSERT_TRUE(steps.Write(no_kind));
  v1::StepResponse response = steps.Next();
  EXPECT_EQ(response.step_id(), 1u);
  EXPECT_EQ(StatusText(response.status()), "INVALID_ARGUMENT BAD_ARGUMENT");
  EXPECT_FALSE(response.status().message().empty());

  v1::StepRequest bad_timeout = Decode(2, session, 0);
  bad_timeout.mutable_timeout()->set_seconds(-3);
  ASSERT_TRUE(steps.Write(bad_timeout));
  EXPECT_EQ(StatusText(steps.Next().status()), "INVALID_ARGUMENT BAD_ARGUMENT");

  v1::StepRequest no_time = Decode(3, session, 0);
  no_time.mutable_timeout()->set_seconds(0);
  ASSERT_TRUE(steps.Write(no_time));
  EXPECT_EQ(StatusText(steps.Next().status()), "DEADLINE_EXCEEDED STEP_TIMEOUT");

  ASSERT_TRUE(steps.Write(Decode(4, "nobody", 0)));
  EXPECT_EQ(StatusText(steps.Next().status()), "NOT_FOUND SESSION_UNKNOWN");
  ASSERT_TRUE(steps.Write(Decode(5, session, 9)));
  EXPECT_EQ(StatusText(steps.Next().status()), "FAILED_PRECONDITION POSITION_MISMATCH");
  v1::StepRequest bad_tensor = Decode(6, session, 0);
  bad_tensor.mutable_decode()->mutable_hidden()->clear_data();
  ASSERT_TRUE(steps.Write(bad_tensor));
  EXPECT_EQ(StatusText(steps.Next().status()), "INVALID_ARGUMENT BAD_TENSOR");
  // One sequence of two: the step succeeds, the sequence does not.
  ASSERT_TRUE(
      steps.Write(StepOf(7, DecodeOf(kSlowLayer, {{session, 0}, {"nobody", 0}}, SlowRows(1, 2)))));
  response = steps.Next();
  EXPECT_EQ(StatusText(response.status()), "OK");
  EXPECT_EQ(StatusText(response.decode().results(0).status()), "OK");
  EXPECT_EQ(StatusText(response.decode().results(1).status()), "NOT_FOUND SESSION_UNKNOWN");
  // The same id again, while another step has it: both are answered.
  ASSERT_TRUE(steps.Write(Decode(8, session, 1)));
  ASSERT_TRUE(steps.Write(Decode(8, session, 2)));
  for (int n = 0; n < 2; ++n) {
    response = steps.Next();
    EXPECT_EQ(response.step_id(), 8u);
    EXPECT_EQ(StatusText(response.status()), "OK");
  }
  steps.HalfClose();
  EXPECT_TRUE(steps.Finish().ok());
}

TEST_F(StepsTest, AnUnparsableFrameEndsTheStream) {
  grpc::ClientContext context;
  Prepare(&context);
  const grpc::internal::RpcMethod method("/attnd.v1.AttentionService/Steps",
                                         grpc::internal::RpcMethod::BIDI_STREAMING,
                                         wire_.channel());
  const std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          wire_.channel().get(), method, &context));
  const grpc::Slice garbage(std::string(100, '\xff'));
  EXPECT_TRUE(stream->Write(grpc::ByteBuffer(&garbage, 1)));
  grpc::ByteBuffer answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(OutcomeOf(stream->Finish(), context).text(), "INVALID_ARGUMENT BAD_ARGUMENT");
  EXPECT_EQ(wire_.Decode(kSlowLayer, {{wire_.Create(), 0}}, SlowRows(1, 1)).size(), 16u);
}

TEST_F(StepsTest, AfterAHalfCloseTheAnswersStillCome) {
  const std::string session = wire_.Create();
  StepsCall steps(wire_);
  for (uint64_t id = 0; id < kMostUnanswered; ++id) {
    ASSERT_TRUE(steps.Write(StepOf(
        id, PrefillOf(session, kSlowLayer, static_cast<int64_t>(id) * 500, SlowRows(id, 500)))));
  }
  steps.HalfClose();
  for (uint64_t id = 0; id < kMostUnanswered; ++id) {
    const v1::StepResponse response = steps.Next();
    EXPECT_EQ(response.step_id(), id);
    EXPECT_EQ(StatusText(response.status()), "OK");
  }
  v1::StepResponse response;
  EXPECT_FALSE(steps.Read(&response));
  EXPECT_TRUE(steps.Finish().ok());
}

TEST_F(StepsTest, TheClientsDeadlineIsThatOfItsSteps) {
  const std::string session = wire_.Create();
  StepsCall steps(wire_, Seconds(0.5));
  ASSERT_TRUE(steps.Write(StepOf(1, PrefillOf(session, kSlowLayer, 0, SlowRows(1, 30'000)))));
  EXPECT_EQ(steps.Finish().code, grpc::StatusCode::DEADLINE_EXCEEDED);
  ASSERT_TRUE(WaitIdle(server_));
  EXPECT_EQ(wire_.Length(session, kSlowLayer), 0);
}

TEST(SlowReaderTest, DoesNotGrowTheServersMemory) {
  ReadyServer server(TinyFlags());
  Wire wire(server.grpc());
  const std::string session = wire.Create();
  v1::PrefillRequest request = PrefillOf(session, kTinyLocal, 0, TinyRows(1, 200));
  request.set_rewind(true);
  wire.Prefill(session, kTinyLocal, 0, TinyRows(1, 200), true);
  const int64_t before = server.RssBytes();
  StepsCall steps(wire);
  std::atomic<int> written{0};
  std::thread writer([&] {
    while (written < 20'000 && steps.Write(StepOf(static_cast<uint64_t>(written), request))) {
      ++written;  // 51 KB each way; 1 GB in all
    }
  });
  // Until nothing moves any more: the transport is full and the server reads no further.
  int last = -1;
  while (written != last) {
    last = written;
    Pause(Seconds(0.5));
  }
  EXPECT_LT(written, 20'000) << "the client was held back";
  EXPECT_LT(server.RssBytes() - before, int64_t{64} << 20);
  EXPECT_LE(wire.Stats().queued_steps(), 64);
  steps.Cancel();
  writer.join();
  steps.Finish();
  EXPECT_TRUE(WaitIdle(server));
  EXPECT_GT(wire.Close(session), 0);
  EXPECT_EQ(wire.Stats().kv_cache_used_bytes(), 0);
}

}  // namespace
}  // namespace attnd
