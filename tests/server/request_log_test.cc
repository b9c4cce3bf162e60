// The lines of sampled requests: their fields, their order, and that nobody waits for them.
#include "server/request_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

RequestRecord Record(Method method = Method::kGetModel) {
  RequestRecord record;
  record.parent = std::make_shared<const TraceParent>(
      TraceParent{"4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", true});
  record.method = method;
  record.total_ns = 1'234'999;
  return record;
}

TEST(RequestLogTest, ARequestThatRanNoStepHasItsTotalAlone) {
  EXPECT_THAT(RequestFields(Record()),
              ElementsAre(Pair("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
                          Pair("span_id", "00f067aa0ba902b7"), Pair("method", "GetModel"),
                          Pair("code", "OK"), Pair("total_us", "1234")));
}

TEST(RequestLogTest, AStepHasItsSizeAndItsTimes) {
  RequestRecord record = Record(Method::kStepsDecode);
  record.code = ReasonCode(Reason::kPositionMismatch);
  record.reason = ReasonName(Reason::kPositionMismatch);
  record.step_id = 77;
  record.run = StepRun{StepKind::kDecode, 5, 16, 2, 32, {12'900, 880'000, 48}};
  EXPECT_THAT(RequestFields(record),
              ElementsAre(Pair("trace_id", ::testing::_), Pair("span_id", ::testing::_),
                          Pair("method", "Steps.Decode"), Pair("code", "FAILED_PRECONDITION"),
                          Pair("reason", "POSITION_MISMATCH"), Pair("step_id", "77"),
                          Pair("sequences", "16"), Pair("layer", "5"), Pair("rows", "32"),
                          Pair("failed", "2"), Pair("batch_rows", "48"), Pair("queue_us", "12"),
                          Pair("compute_us", "880"), Pair("total_us", "1234")));
}

TEST(RequestLogTest, LinesAreWrittenInOrder) {
  testing::internal::CaptureStderr();
  {
    const Log log(false);
    RequestLog requests(log, true);
    for (uint64_t i = 0; i < 100; ++i) {
      RequestRecord record = Record(Method::kStepsPrefill);
      record.step_id = i;
      requests.Add(std::move(record));
    }
    RequestRecord stream = Record(Method::kSteps);
    stream.steps = 100;
    requests.Add(std::move(stream));
    requests.Flush();
  }
  const std::string lines = testing::internal::GetCapturedStderr();
  size_t at = 0;
  for (int i = 0; i < 100; ++i) {
    at = lines.find(" info request trace_id=4bf92f3577b34da6a3ce929d0e0e4736 ", at);
    ASSERT_NE(at, std::string::npos) << i;
    at = lines.find(" step_id=" + std::to_string(i) + " ", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_NE(lines.find(" info stream trace_id=", at), std::string::npos);
  EXPECT_NE(lines.find(" steps=100 total_us=1234\n", at), std::string::npos);
}

TEST(RequestLogTest, OffItWritesNothing) {
  testing::internal::CaptureStderr();
  {
    const Log log(false);
    RequestLog requests(log, false);
    EXPECT_FALSE(requests.on());
    requests.Add(Record());
    requests.Flush();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

int Sum(const std::string& text, const std::string& key) {
  int sum = 0;
  for (size_t at = 0; (at = text.find(key, at)) != std::string::npos; ++at) {
    sum += std::atoi(text.c_str() + at + key.size());
  }
  return sum;
}

std::string ReadWhatIsThere(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text;
  std::array<char, 65536> buffer{};
  for (ssize_t got = 0; (got = read(fd, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

// stderr is a pipe that nobody reads at first. Neither Add() nor Flush() nor the end waits for it.
TEST(RequestLogTest, NobodyWaitsForAFullStderrAndTheDroppedAreCounted) {
  constexpr int kRecords = 40'000;
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  std::string text;
  const auto begin = std::chrono::steady_clock::now();
  {
    const Log log(true);
    RequestLog requests(log, true);
    for (int i = 0; i < kRecords; ++i) {
      requests.Add(Record());
    }
    requests.Flush();
    log.Info("full");
    text = ReadWhatIsThere(ends[0]);
    requests.Add(Record());
    requests.Flush();
    log.Info("stopped");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  text += ReadWhatIsThere(ends[0]);
  dup2(saved, STDERR_FILENO);
  close(ends[0]);
  close(ends[1]);
  close(saved);
  int lines = 0;
  for (size_t at = 0; (at = text.find("\"event\":\"", at)) != std::string::npos; ++at) {
    ++lines;
  }
  const int queue = Sum(text, R"("event":"requests_dropped","count":")");
  const int full = Sum(text, R"("event":"lines_dropped","count":")");
  EXPECT_GT(full, 0);
  EXPECT_GT(lines, 100);
  // More by the lines that are no requests.
  EXPECT_GE(lines + queue + full, kRecords);
  EXPECT_THAT(text, HasSubstr(R"("level":"warning","event":"lines_dropped")"));
  EXPECT_THAT(text, HasSubstr("\"event\":\"stopped\""));
}

}  // namespace
}  // namespace attnd::server
