// The phases of a server's life, and answers that are too large to send.
#include "server/admission.h"

#include <limits>

#include "core/error.h"
#include "gtest/gtest.h"

namespace attnd::server {
namespace {

TEST(AdmissionTest, Phases) {
  Admission admission;
  EXPECT_EQ(ReasonOf(admission.AdmitWork()), Reason::kNotReady);
  EXPECT_EQ(ReasonOf(admission.AdmitRead()), Reason::kNotReady);
  EXPECT_TRUE(RetryAfterMs(admission.AdmitWork()).has_value());
  EXPECT_FALSE(admission.ready());

  admission.BeginServing();
  EXPECT_TRUE(admission.AdmitWork().ok());
  EXPECT_TRUE(admission.ready());
  EXPECT_FALSE(admission.draining());

  admission.BeginDraining();  // the balancer is being told: everything is still served
  EXPECT_TRUE(admission.AdmitWork().ok());
  EXPECT_FALSE(admission.ready());
  EXPECT_TRUE(admission.draining());
  EXPECT_FALSE(admission.refusing());

  admission.BeginRefusing();
  EXPECT_EQ(ReasonOf(admission.AdmitWork()), Reason::kDraining);
  EXPECT_TRUE(admission.AdmitRead().ok());
  EXPECT_TRUE(admission.refusing());
}

TEST(AdmissionTest, APhaseNeverGoesBack) {
  Admission admission;
  admission.BeginServing();
  admission.BeginRefusing();
  admission.BeginDraining();
  admission.BeginServing();
  EXPECT_TRUE(admission.refusing());
}

TEST(AdmissionTest, TheLargestAnswerThatFits) {
  // 10 rows of 64 float32.
  const int64_t limit = 10 * 256 + AnswerOverhead(0);
  EXPECT_TRUE(CheckAnswerSize(10, 64, DType::kF32, 0, limit).ok());
  EXPECT_EQ(ReasonOf(CheckAnswerSize(11, 64, DType::kF32, 0, limit)), Reason::kMessageTooLarge);
  EXPECT_TRUE(CheckAnswerSize(20, 64, DType::kF16, 0, limit).ok());
  EXPECT_FALSE(CheckAnswerSize(21, 64, DType::kF16, 0, limit).ok());
  EXPECT_FALSE(CheckAnswerSize(10, 64, DType::kF32, 1, limit).ok());
  EXPECT_TRUE(CheckAnswerSize(0, 64, DType::kF32, 0, limit).ok());
}

TEST(AdmissionTest, HugeRowCountsDoNotOverflow) {
  EXPECT_FALSE(
      CheckAnswerSize(std::numeric_limits<int64_t>::max(), 65536, DType::kF32, 0, int64_t{1} << 31)
          .ok());
}

}  // namespace
}  // namespace attnd::server
