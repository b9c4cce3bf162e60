// The Steps stream over a real connection, its engine driven by hand: order, bounds, cancels,
// timeouts, parts, and every way in which a stream ends.
#include <chrono>
#include <mutex>
#include <thread>

#include "grpcpp/client_context.h"
#include "grpcpp/support/sync_stream.h"
#include "tests/server/service_fixture.h"

namespace attnd::server {
namespace {

// A stream whose answers a thread collects.
class TestStream {
 public:
  explicit TestStream(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(v1::AttentionService::NewStub(channel)), stream_(stub_->Steps(&context_)) {
    reader_ = std::thread([this] {
      stream_->WaitForInitialMetadata();
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        opened_ = true;
      }
      v1::StepResponse response;
      while (stream_->Read(&response)) {
        const std::lock_guard<std::mutex> lock(mutex_);
        responses_.push_back(response);
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
    });
  }
  ~TestStream() {
    context_.TryCancel();
    reader_.join();
  }

  bool Send(const v1::StepRequest& request) { return stream_->Write(request); }
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }

  std::vector<v1::StepResponse> responses() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return responses_;
  }
  size_t count() { return responses().size(); }
  bool ended() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ended_;
  }
  // The initial metadata is there.
  bool opened() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return opened_;
  }
  // After ended(). "UNAVAILABLE DRAINING" as 14 and the trailing reason.
  std::string Status() {
    const grpc::Status status = stream_->Finish();
    const auto& trailers = context_.GetServerTrailingMetadata();
    const auto reason = trailers.find("attnd-reason");
    return std::to_string(status.error_code()) +
           (reason == trailers.end()
                ? ""
                : " " + std::string(reason->second.data(), reason->second.size()));
  }
  // After opened().
  std::string ServerId() {
    const auto& metadata = context_.GetServerInitialMetadata();
    const auto found = metadata.find("attnd-server");
    return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepRequest, v1::StepResponse>> stream_;
  std::thread reader_;
  std::mutex mutex_;
  std::vector<v1::StepResponse> responses_;
  bool opened_ = false;
  bool ended_ = false;
};

class StepsStreamTest : public ServiceFixture {
 protected:
  v1::StepRequest Step(uint64_t step_id, const std::string& id, int64_t position,
                       int64_t rows = 1) {
    v1::StepRequest request;
    request.set_step_id(step_id);
    *request.mutable_prefill() = Prefill(id, position, rows);
    return request;
  }
  int64_t queued() { return engine_.engine().stats().queued_steps; }
  int64_t Length(const std::string& id) { return engine_.Find(id)->Length(0); }
  // Waits for the server without letting the engine run.
  static void WaitFor(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "nothing happened";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

TEST_F(StepsStreamTest, StepsOfASessionAreAnsweredInOrder) {
  StartGrpc();
  const std::string id = engine_.Create();
  TestStream stream(channel_);
  for (uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(stream.Send(Step(100 + i, id, static_cast<int64_t>(i))));
  }
  RunEngineUntil([&] { return stream.count() == 10; });
  const auto responses = stream.responses();
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(responses[i].step_id(), 100 + i);
    EXPECT_TRUE(responses[i].has_status());
    EXPECT_EQ(responses[i].status().code(), 0) << responses[i].status().message();
    EXPECT_EQ(responses[i].prefill().length(), static_cast<int64_t>(i) + 1);
    EXPECT_FALSE(responses[i].more());
  }
  stream.HalfClose();
  WaitFor([&] { return stream.ended(); });
  EXPECT_EQ(stream.Status(), "0");
  EXPECT_EQ(stream.ServerId(), "replica-7");
}

TEST_F(StepsStreamTest, TheServersIdComesBeforeTheFirstStep) {
  StartGrpc();
  TestStream stream(channel_);
  WaitFor([&] { return stream.opened(); });
  EXPECT_EQ(stream.ServerId(), "replica-7");
}

TEST_F(StepsStreamTest, IsNotReadBeyondItsBound) {
  config_.max_stream_steps = 3;
  StartGrpc();
  const std::string id = engine_.Create();
  TestStream stream(channel_);
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(stream.Send(Step(i, id, static_cast<int64_t>(i))));
  }
  WaitFor([&] { return queued() == 3; });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(queued(), 3);
  RunEngineUntil([&] { return stream.count() == 8; });
  EXPECT_EQ(Length(id), 8);
}

TEST_F(StepsStreamTest, AStepWithoutAKindFailsAlone) {
  StartGrpc();
  const std::string id = engine_.Create();
  TestStream stream(channel_);
  v1::StepRequest empty;
  empty.set_step_id(5);
  ASSERT_TRUE(stream.Send(empty));
  ASSERT_TRUE(stream.Send(Step(6, id, 0)));
  RunEngineUntil([&] { return stream.count() == 2; });
  EXPECT_EQ(stream.responses()[0].step_id(), 5U);
  EXPECT_EQ(stream.responses()[0].status().reason(), "BAD_ARGUMENT");
  EXPECT_EQ(stream.responses()[1].status().code(), 0);
}

// What is owed is answered, then the stream ends; nothing behind the broken frame is read.
TEST_F(StepsStreamTest, AnUnparsableFrameEndsTheStream) {
  StartGrpc();
  const std::string id = engine_.Create();
  TestStream stream(channel_);
  ASSERT_TRUE(stream.Send(Step(1, id, 0)));
  v1::StepRequest broken;  // a session's id that is not UTF-8
  broken.mutable_prefill()->set_session_id("\xff");
  ASSERT_TRUE(stream.Send(broken));
  stream.Send(Step(3, id, 1));
  WaitFor([&] { return queued() == 1; });
  RunEngineUntil([&] { return stream.ended(); });
  ASSERT_EQ(stream.count(), 1U);
  EXPECT_EQ(stream.responses()[0].status().code(), 0);
  EXPECT_EQ(stream.Status(), "3 BAD_ARGUMENT");
  EXPECT_EQ(Length(id), 1);
  RunEngineUntil([&] { return service_.live_calls.load() == 0; });
  EXPECT_NE(
      Metrics().find("attnd_rpc_requests_total{code=\"INVALID_ARGUMENT\",method=\"Steps\"} 1\n"),
      std::string::npos);
}

TEST_F(StepsStreamTest, CancelStepIdCancelsThatStepAndHasNoAnswer) {
  StartGrpc();
  const std::string id = engine_.Create();
  TestStream stream(channel_);
  ASSERT_TRUE(stream.Send(Step(1, id, 0)));
  ASSERT_TRUE(stream.Send(Step(2, id, 1)));
  v1::StepRequest cancel;
  cancel.set_step_id(3);
  cancel.set_cancel_step_id(2);
  ASSERT_TRUE(stream.Send(cancel));
  // Read after the cancel: once it is queued, the cancel has been seen.
  ASSERT_TRUE(stream.Send(Step(4, engine_.Create(), 0)));
  WaitFor([&] { return queued() == 3; });
  RunEngineUntil([&] { return stream.count() == 3; });
  std::map<uint64_t, std::string> reasons;
  for (const auto& response : stream.responses()) {
    reasons[response.step_id()] = response.status().reason();
  }
  EXPECT_EQ(reasons, (std::map<uint64_t, std::string>{{1, ""}, {2, "STEP_CANCELLED"}, {4, ""}}));
  EXPECT_EQ(Length(id), 1);
}

TEST_F(StepsStreamTest, ATimeoutCountsFromTheSteps) {
  StartGrpc();
  const std::string id = engine_.Create();
  TestStream stream(channel_);
  v1::StepRequest request = Step(1, id, 0);
  request.mutable_timeout()->set_seconds(2);
  ASSERT_TRUE(stream.Send(request));
  WaitFor([&] { return queued() == 1; });
  engine_.clock().Advance(2'000'000'000);
  RunEngineUntil([&] { return stream.count() == 1; });
  EXPECT_EQ(stream.responses()[0].status().code(), 4);
  EXPECT_EQ(stream.responses()[0].status().reason(), "STEP_TIMEOUT");
  EXPECT_EQ(Length(id), 0);
  request.mutable_timeout()->set_seconds(-1);
  ASSERT_TRUE(stream.Send(request));
  RunEngineUntil([&] { return stream.count() == 2; });
  EXPECT_EQ(stream.responses()[1].status().reason(), "BAD_ARGUMENT");
}

// Nine rows of prefix come back where a message holds four.
TEST_F(StepsStreamTest, ALongAnswerComesInParts) {
  config_.max_message_bytes = 256 + 4 * d_model() * 4;
  StartGrpc();
  const std::string whole = engine_.Create(/*prefix=*/9);
  const std::string parted = engine_.Create(/*prefix=*/9);
  const std::vector<float> rows = RandomRows(1, 9, d_model());
  const std::vector<float> expected = engine_.Run(engine_.Prefill(whole, 0, 0, rows))->output;
  TestStream stream(channel_);
  for (int64_t i = 0; i < 3; ++i) {
    v1::StepRequest request = Step(static_cast<uint64_t>(i), parted, 3 * i, 3);
    request.mutable_prefill()->mutable_hidden()->set_data(rows.data() + 3 * i * d_model(),
                                                          static_cast<size_t>(3 * d_model()) * 4);
    ASSERT_TRUE(stream.Send(request));
  }
  RunEngineUntil([&] { return stream.count() == 5; });
  const auto responses = stream.responses();
  EXPECT_EQ(responses[0].prefill().output().shape(0), 0);
  EXPECT_EQ(responses[1].prefill().output().shape(0), 0);
  std::string data;
  for (size_t i = 2; i < 5; ++i) {
    EXPECT_EQ(responses[i].step_id(), 2U);
    EXPECT_EQ(responses[i].more(), i < 4);
    EXPECT_EQ(responses[i].prefill().output_position(), static_cast<int64_t>(i - 2) * 4);
    EXPECT_EQ(responses[i].prefill().length(), 9);
    data += responses[i].prefill().output().data();
  }
  ASSERT_EQ(data.size(), expected.size() * 4);
  std::vector<float> got(expected.size());
  std::memcpy(got.data(), data.data(), data.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], 1e-4F);  // split differently: another order of sums
  }
}

TEST_F(StepsStreamTest, ACancelledStreamLeavesNothingBehind) {
  StartGrpc();
  const std::string id = engine_.Create();
  {
    TestStream stream(channel_);
    for (uint64_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(stream.Send(Step(i, id, static_cast<int64_t>(i))));
    }
    WaitFor([&] { return queued() == 5; });
    stream.Cancel();
    WaitFor([&] { return stream.ended(); });
    // The server learns of the cancel a little later than the client.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    RunEngineUntil([&] { return service_.live_calls.load() == 0; });
  }
  EXPECT_EQ(Length(id), 0);
  EXPECT_EQ(queued(), 0);
  EXPECT_NE(Metrics().find("attnd_inflight_rpcs 0\n"), std::string::npos);
}

TEST_F(StepsStreamTest, CloseEndsAnIdleStream) {
  StartGrpc();
  TestStream stream(channel_);
  WaitFor([&] { return stream.opened(); });
  streams_.CloseAll();
  WaitFor([&] { return stream.ended(); });
  EXPECT_EQ(stream.Status(), "14 DRAINING");
}

TEST_F(StepsStreamTest, CloseWaitsForWhatIsOwed) {
  StartGrpc();
  const std::string id = engine_.Create();
  TestStream stream(channel_);
  ASSERT_TRUE(stream.Send(Step(1, id, 0)));
  WaitFor([&] { return queued() == 1; });
  admission_.BeginRefusing();
  ASSERT_TRUE(stream.Send(Step(2, id, 1)));  // refused in the stream
  WaitFor([&] { return stream.count() == 1; });
  EXPECT_EQ(stream.responses()[0].status().reason(), "DRAINING");
  streams_.CloseAll();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(stream.ended());
  RunEngineUntil([&] { return stream.ended(); });
  ASSERT_EQ(stream.count(), 2U);
  EXPECT_EQ(stream.responses()[1].status().code(), 0);
  EXPECT_EQ(stream.Status(), "14 DRAINING");
}

TEST_F(StepsStreamTest, ARefusingServerOpensNoStream) {
  StartGrpc();
  admission_.BeginRefusing();
  TestStream stream(channel_);
  WaitFor([&] { return stream.ended(); });
  EXPECT_EQ(stream.Status(), "14 DRAINING");
}

TEST_F(StepsStreamTest, StepsCountAsRequests) {
  StartGrpc();
  const std::string id = engine_.Create();
  TestStream stream(channel_);
  ASSERT_TRUE(stream.Send(Step(1, id, 0)));
  ASSERT_TRUE(stream.Send(Step(2, id, 7)));
  RunEngineUntil([&] { return stream.count() == 2; });
  const std::string text = Metrics();
  for (const char* line :
       {"attnd_rpc_requests_total{code=\"OK\",method=\"Steps.Prefill\"} 1\n",
        "attnd_rpc_requests_total{code=\"FAILED_PRECONDITION\",method=\"Steps.Prefill\"} 1\n",
        "attnd_step_queue_seconds_count{kind=\"local\",phase=\"prefill\"} 1\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace attnd::server
