// The metadata `traceparent`: what is valid by W3C Trace Context, and what is not.
#include "server/trace_parent.h"

#include "gtest/gtest.h"

namespace attnd::server {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kSpan[] = "00f067aa0ba902b7";

std::string Header(const std::string& version, const std::string& trace, const std::string& span,
                   const std::string& flags) {
  return version + "-" + trace + "-" + span + "-" + flags;
}

TEST(TraceParentTest, IdsAndTheSampledFlagAreRead) {
  const auto parent = ParseTraceParent(Header("00", kTrace, kSpan, "01"));
  ASSERT_TRUE(parent.has_value());
  EXPECT_EQ(parent->trace_id, kTrace);
  EXPECT_EQ(parent->span_id, kSpan);
  EXPECT_TRUE(parent->sampled);
}

TEST(TraceParentTest, OnlyTheLowestFlagIsTheSampledOne) {
  for (const auto& [flags, sampled] : {std::pair{"00", false},
                                       {"02", false},
                                       {"03", true},
                                       {"fe", false},
                                       {"ff", true},
                                       {"0b", true},
                                       {"0a", false}}) {
    const auto parent = ParseTraceParent(Header("00", kTrace, kSpan, flags));
    ASSERT_TRUE(parent.has_value()) << flags;
    EXPECT_EQ(parent->sampled, sampled) << flags;
  }
}

TEST(TraceParentTest, OfALaterVersionTheKnownPartIsRead) {
  EXPECT_TRUE(ParseTraceParent(Header("01", kTrace, kSpan, "01")).has_value());
  EXPECT_TRUE(ParseTraceParent(Header("cc", kTrace, kSpan, "01") + "-what-comes-then").has_value());
  EXPECT_FALSE(ParseTraceParent(Header("cc", kTrace, kSpan, "01") + ".x").has_value());
}

TEST(TraceParentTest, WhatIsNotValidIsNothing) {
  const std::string good = Header("00", kTrace, kSpan, "01");
  for (const std::string& bad : {
           std::string(),
           std::string("00"),
           std::string(55, '0'),
           std::string(55, '-'),
           std::string(100'000, 'a'),
           good.substr(0, 54),
           good + "0",
           good + "-",
           good + "\n",
           " " + good,
           Header("ff", kTrace, kSpan, "01"),
           Header("0x", kTrace, kSpan, "01"),
           Header("00", std::string(32, '0'), kSpan, "01"),
           Header("00", kTrace, std::string(16, '0'), "01"),
           Header("00", "4BF92F3577B34DA6A3CE929D0E0E4736", kSpan, "01"),
           Header("00", "4bf92f3577b34da6a3ce929d0e0e473g", kSpan, "01"),
           Header("00", kTrace, "00f067aa0ba902b\n", "01"),
           Header("00", kTrace, kSpan, "0g"),
           Header("00", kTrace, kSpan, "0 "),
           "00_" + good.substr(3),
       }) {
    EXPECT_FALSE(ParseTraceParent(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace attnd::server
