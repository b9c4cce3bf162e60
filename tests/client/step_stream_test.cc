// Steps in flight: order, bounds, joined answers, cancels, and a stream that breaks.
#include "client/cpp/step_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/client/fake_server.h"

namespace attnd::client {
namespace {

PrefillStep Step(const std::string& session, int64_t layer, int64_t position, float value) {
  PrefillStep step;
  step.session_id = session;
  step.layer = layer;
  step.position = position;
  step.hidden = {value, value};
  return step;
}

TEST(StepStream, RunsTheStepsOfASessionInOrder) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  const auto stream = *StepStream::Open(*client);
  std::vector<std::future<StepResult>> results;
  for (int i = 0; i < 100; ++i) {
    results.push_back(stream->Submit(Step(session->id(), 0, i, static_cast<float>(i))));
  }
  for (int i = 0; i < 100; ++i) {
    const StepResult result = results[static_cast<size_t>(i)].get();
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.output_position, i);
    EXPECT_EQ(result.output, (std::vector<float>(2, 2.0f * static_cast<float>(i))));
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(server.Length(session->id(), 0), 100);
}

TEST(StepStream, JoinsAnAnswerThatComesInParts) {
  FakeServer server;
  server.set_stream_rows(2);
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  const auto stream = *StepStream::Open(*client);
  PrefillStep step = Step(session->id(), 0, 0, 0);
  step.hidden = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const StepResult result = stream->Submit(step).get();
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.output, (std::vector<float>{2, 4, 6, 8, 10, 12, 14, 16, 18, 20}));
  EXPECT_EQ(result.output_position, 0);
}

TEST(StepStream, AFailedStepLeavesTheStreamUsable) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  const auto stream = *StepStream::Open(*client);
  EXPECT_EQ(ErrorOf(stream->Submit(Step(session->id(), 0, 7, 1)).get().status).reason,
            "POSITION_MISMATCH");
  DecodeStep decode;
  decode.sequences.push_back({session->id(), 0, 1, false, 0});
  decode.hidden = {3, 4};
  const StepResult result = stream->Submit(decode).get();
  ASSERT_TRUE(result.status.ok()) << result.status;
  ASSERT_EQ(result.sequences.size(), 1u);
  EXPECT_TRUE(result.sequences[0].ok());
  EXPECT_EQ(result.output, (std::vector<float>{6, 8}));
}

TEST(StepStream, NeverHasMoreInFlightThanAllowed) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  StreamOptions options;
  options.max_in_flight = 3;
  const auto stream = *StepStream::Open(*client, options);
  std::atomic<int> submitted = 0;
  std::atomic<int> answered = 0;
  std::thread submitter([&] {
    for (int i = 0; i < 9; ++i) {
      stream->Submit(Step(session->id(), FakeServer::kSilentLayer, i, 1),
                     [&](const StepResult& result) {
                       EXPECT_EQ(ErrorOf(result.status).reason, "STEP_CANCELLED");
                       ++answered;
                     });
      ++submitted;
    }
  });
  while (submitted < 3) {
    std::this_thread::yield();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(submitted, 3);
  // Ids count from 1; a cancel of a step that is not there does nothing.
  for (uint64_t id = 1; answered < 9; id = id % 9 + 1) {
    stream->Cancel(id);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  submitter.join();
  EXPECT_EQ(server.most_in_flight(), 3);
}

TEST(StepStream, ABrokenStreamAnswersEveryStep) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  const auto stream = *StepStream::Open(*client);
  auto silent = stream->Submit(Step(session->id(), FakeServer::kSilentLayer, 0, 1));
  server.BreakStreams();
  auto lost = stream->Submit(Step(session->id(), 0, 0, 1));
  EXPECT_EQ(silent.get().status.code(), absl::StatusCode::kUnavailable);
  const Error error = ErrorOf(lost.get().status);
  EXPECT_EQ(error.code, absl::StatusCode::kUnavailable);
  EXPECT_FALSE(error.no_effect());
  EXPECT_EQ(stream->Submit(Step(session->id(), 0, 0, 1)).get().status.code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kUnavailable);
}

TEST(StepStream, IsDestroyedWithStepsUnanswered) {
  FakeServer server;
  const auto client = server.Connect();
  const auto session = *client->CreateSession({});
  auto stream = *StepStream::Open(*client);
  auto silent = stream->Submit(Step(session->id(), FakeServer::kSilentLayer, 0, 1));
  stream.reset();
  EXPECT_EQ(silent.get().status.code(), absl::StatusCode::kCancelled);
}

TEST(StepStream, TakesStepsFromManyThreads) {
  FakeServer server;
  const auto client = server.Connect();
  StreamOptions options;
  options.max_in_flight = 8;
  const auto stream = *StepStream::Open(*client, options);
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    const std::string id = "thread-" + std::to_string(t);
    ASSERT_TRUE(client->CreateSession({id, 0, 0, {}}).ok());
    threads.emplace_back([&stream, &right, id] {
      for (int i = 0; i < 50; ++i) {
        const StepResult result = stream->Submit(Step(id, 0, i, static_cast<float>(i))).get();
        right += result.status.ok() && result.output[0] == 2.0f * static_cast<float>(i) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(right, 200);
}

}  // namespace
}  // namespace attnd::client
