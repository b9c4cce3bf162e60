// Requests whose metadata has a sampled `traceparent` are logged with their timings; no others.
#include <algorithm>
#include <map>
#include <sstream>

#include "tests/integration/tiny_server.h"

namespace attnd {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kSampled[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

using Line = std::map<std::string, std::string>;

// The log's lines of an event, by key.
std::vector<Line> Lines(const std::string& log, const std::string& event) {
  std::vector<Line> lines;
  std::istringstream text(log);
  for (std::string row; std::getline(text, row);) {
    if (row.find(" info " + event + " ") == std::string::npos) {
      continue;
    }
    Line& line = lines.emplace_back();
    std::istringstream words(row);
    for (std::string word; words >> word;) {
      if (const size_t equals = word.find('='); equals != std::string::npos) {
        line[word.substr(0, equals)] = word.substr(equals + 1);
      }
    }
  }
  return lines;
}

class TracedRequestsTest : public TinyServerTest {
 protected:
  explicit TracedRequestsTest(const std::vector<std::string>& more = {}) : TinyServerTest(more) {}

  // One Decode of a row to each of the sessions.
  grpc::StatusCode Decode(const std::vector<Part>& parts,
                          const std::vector<std::string>& traceparents) {
    grpc::ClientContext context;
    Prepare(&context);
    for (const std::string& value : traceparents) {
      context.AddMetadata("traceparent", value);
    }
    v1::DecodeResponse response;
    return wire_.attention()
        .Decode(&context,
                DecodeOf(kTinyLocal, parts, TinyRows(2, static_cast<int64_t>(parts.size()))),
                &response)
        .error_code();
  }

  std::vector<Line> Wait(const std::string& event, size_t count) {
    EXPECT_TRUE(WaitUntil([&] { return Lines(server_.Stderr(), event).size() >= count; }))
        << server_.Stderr();
    return Lines(server_.Stderr(), event);
  }
};

TEST_F(TracedRequestsTest, ASampledDecodeIsLoggedWithItsTimes) {
  const std::string a = wire_.Create();
  const std::string b = wire_.Create();
  ASSERT_EQ(Decode({{a, 0}, {b, 9}}, {kSampled}), grpc::StatusCode::OK);
  Line line = Wait("request", 1).front();
  EXPECT_EQ(line["trace_id"], kTrace);
  EXPECT_EQ(line["span_id"], "00f067aa0ba902b7");
  EXPECT_EQ(line["method"], "Decode");
  EXPECT_EQ(line["code"], "OK");
  EXPECT_EQ(line.count("reason"), 0U);
  EXPECT_EQ(line["layer"], std::to_string(kTinyLocal));
  EXPECT_EQ(line["sequences"], "2");
  EXPECT_EQ(line["failed"], "1") << "the second is at another position";
  EXPECT_EQ(line["rows"], "2");
  EXPECT_LE(std::stol(line["queue_us"]) + std::stol(line["compute_us"]),
            std::stol(line["total_us"]) + 2);
  EXPECT_THAT(server_.Stderr(), Not(HasSubstr(a))) << "no session is named";
}

TEST_F(TracedRequestsTest, ARefusedCallIsLoggedWithItsReason) {
  ASSERT_EQ(Decode({{"nobody", 0}}, {kSampled}), grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext context;
  Prepare(&context);
  context.AddMetadata("traceparent", kSampled);
  v1::ModelInfo model;
  ASSERT_TRUE(v1::ModelService::NewStub(wire_.channel())->GetModel(&context, {}, &model).ok());
  std::vector<Line> lines = Wait("request", 2);
  EXPECT_EQ(lines[0]["code"], "NOT_FOUND");
  EXPECT_EQ(lines[0]["reason"], "SESSION_UNKNOWN");
  EXPECT_EQ(lines[0].count("compute_us"), 0U) << "nothing was computed";
  EXPECT_EQ(lines[1]["method"], "GetModel");
}

TEST_F(TracedRequestsTest, AStreamIsLoggedByStepAndAsAWhole) {
  const std::string session = wire_.Create();
  grpc::ClientContext context;
  Prepare(&context);
  context.AddMetadata("traceparent", kSampled);
  const auto stream = wire_.attention().Steps(&context);
  ASSERT_TRUE(stream->Write(StepOf(41, PrefillOf(session, kTinyGlobal, 0, TinyRows(1, 5)))));
  ASSERT_TRUE(stream->Write(StepOf(42, DecodeOf(kTinyGlobal, {{session, 3}}, TinyRows(1, 1)))));
  stream->WritesDone();
  v1::StepResponse response;
  while (stream->Read(&response)) {
  }
  ASSERT_TRUE(stream->Finish().ok());
  std::vector<Line> steps = Wait("request", 2);
  EXPECT_EQ(steps[0]["method"], "Steps.Prefill");
  EXPECT_EQ(steps[0]["step_id"], "41");
  EXPECT_EQ(steps[0]["rows"], "5");
  EXPECT_EQ(steps[0]["layer"], std::to_string(kTinyGlobal));
  EXPECT_EQ(steps[0]["trace_id"], kTrace);
  EXPECT_EQ(steps[1]["method"], "Steps.Decode");
  EXPECT_EQ(steps[1]["step_id"], "42");
  EXPECT_EQ(steps[1]["reason"], "POSITION_MISMATCH");
  Line whole = Wait("stream", 1).front();
  EXPECT_EQ(whole["method"], "Steps");
  EXPECT_EQ(whole["steps"], "2");
  EXPECT_EQ(whole["code"], "OK");
  EXPECT_EQ(whole["trace_id"], kTrace);
}

TEST_F(TracedRequestsTest, WhatIsNotSampledOrNotValidIsNotLogged) {
  const std::string session = wire_.Create();
  const std::string raw = "00-evil\"id-zzzz-01";
  EXPECT_EQ(Decode({{session, 0}}, {}), grpc::StatusCode::OK);
  int64_t position = 1;
  for (const std::vector<std::string>& values :
       std::vector<std::vector<std::string>>{{std::string(kSampled).replace(53, 2, "00")},
                                             {raw},
                                             {std::string(4000, 'a')},
                                             {kSampled, kSampled}}) {  // which of the two?
    EXPECT_EQ(Decode({{session, position++}}, values), grpc::StatusCode::OK);
  }
  ASSERT_EQ(Decode({{session, 5}}, {kSampled}), grpc::StatusCode::OK);
  EXPECT_EQ(Wait("request", 1).size(), 1U);
  EXPECT_THAT(server_.Stderr(), Not(HasSubstr("evil")));
  EXPECT_EQ(wire_.Length(session, kTinyLocal), 6) << "all of them were served";
}

class UntracedRequestsTest : public TracedRequestsTest {
 protected:
  UntracedRequestsTest() : TracedRequestsTest({"--log_requests=off"}) {}
};

TEST_F(UntracedRequestsTest, NothingIsLogged) {
  ASSERT_EQ(Decode({{wire_.Create(), 0}}, {kSampled}), grpc::StatusCode::OK);
  EXPECT_THAT(server_.Stderr(), Not(HasSubstr(kTrace)));
}

TEST(TracedJsonTest, LinesAreObjects) {
  ReadyServer server(TinyFlags({"--log_format=json"}));
  Wire wire(server.grpc());
  grpc::ClientContext context;
  Prepare(&context);
  context.AddMetadata("traceparent", kSampled);
  v1::Stats stats;
  ASSERT_TRUE(wire.admin().GetStats(&context, {}, &stats).ok());
  server.Signal(SIGTERM);
  ASSERT_EQ(server.WaitExit(), 0);
  EXPECT_THAT(server.Stderr(),
              HasSubstr("\"event\":\"request\",\"trace_id\":\"" + std::string(kTrace) +
                        "\",\"span_id\":\"00f067aa0ba902b7\",\"method\":"
                        "\"GetStats\",\"code\":\"OK\",\"total_us\":"));
}

}  // namespace
}  // namespace attnd
