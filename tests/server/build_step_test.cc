// From a request to a step: what is refused, in which order, and that it has cost nothing.
#include "server/build_step.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "tests/server/service_fixture.h"
#include "tests/server/wire_bytes.h"

namespace attnd::server {
namespace {

class BuildStepTest : public ServiceFixture {
 protected:
  absl::StatusOr<BuiltStep> Build(const Caller& caller, const v1::PrefillRequest& request,
                                  AnswerForm form = AnswerForm::kOneMessage) {
    TensorBytes hidden;
    SetBytes(request.hidden(), &hidden);
    return BuildPrefill(service_, caller, request, hidden, form);
  }
  absl::StatusOr<BuiltStep> Build(const Caller& caller, const v1::DecodeRequest& request) {
    TensorBytes hidden;
    SetBytes(request.hidden(), &hidden);
    return BuildDecode(service_, caller, request, hidden);
  }
  std::string PrefillText(const v1::PrefillRequest& request,
                          AnswerForm form = AnswerForm::kOneMessage) {
    return Text(Build(NewCaller(), request, form).status());
  }
  std::string DecodeText(const v1::DecodeRequest& request) {
    return Text(Build(NewCaller(), request).status());
  }
  v1::DecodeRequest Decode(const std::vector<std::string>& ids, int64_t position) {
    v1::DecodeRequest request;
    for (const std::string& id : ids) {
      request.add_sequences()->set_session_id(id);
      request.mutable_sequences()->rbegin()->set_position(position);
    }
    *request.mutable_hidden() = Hidden(5, static_cast<int64_t>(ids.size()));
    return request;
  }
  static void Poison(v1::Tensor* tensor, size_t element) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(tensor->mutable_data()->data() + element * 4, &nan, 4);
  }
};

TEST_F(BuildStepTest, APrefillBecomesAStep) {
  const std::string id = engine_.Create();
  v1::PrefillRequest request = Prefill(id, 0, 3);
  request.set_layer(1);
  request.set_rewind(true);
  request.set_expected_length(9);
  request.set_output_rows(v1::OUTPUT_ROWS_LAST);
  request.set_output_dtype(v1::DTYPE_BF16);
  const auto built = Build(NewCaller(), request);
  ASSERT_TRUE(built.ok()) << built.status();
  const Step& step = *built->step;
  EXPECT_EQ(step.kind, StepKind::kPrefill);
  EXPECT_EQ(step.layer, 1);
  EXPECT_EQ(step.output_rows, OutputRows::kLast);
  EXPECT_EQ(built->output_dtype, DType::kBF16);
  ASSERT_EQ(step.sequences.size(), 1U);
  EXPECT_EQ(step.sequences[0].session, engine_.Find(id));
  EXPECT_EQ(step.sequences[0].rows, 3);
  EXPECT_TRUE(step.sequences[0].rewind);
  EXPECT_EQ(step.sequences[0].expected_length, 9);
  EXPECT_EQ(step.hidden, RandomRows(1, 3, d_model()));
}

TEST_F(BuildStepTest, WhatIsWrongWithAPrefill) {
  const std::string id = engine_.Create();
  v1::PrefillRequest bad = Prefill(id, 0, 1);
  bad.set_layer(2);
  EXPECT_EQ(PrefillText(bad), "INVALID_ARGUMENT BAD_LAYER");
  bad = Prefill(id, 0, 1);
  bad.mutable_hidden()->mutable_data()->pop_back();
  EXPECT_EQ(PrefillText(bad), "INVALID_ARGUMENT BAD_TENSOR");
  bad = Prefill(id, 0, 1);
  bad.set_output_dtype(v1::DTYPE_INT8);
  EXPECT_EQ(PrefillText(bad), "INVALID_ARGUMENT BAD_TENSOR");
  bad = Prefill(id, 0, 1);
  bad.set_output_rows(static_cast<v1::OutputRows>(7));
  EXPECT_EQ(PrefillText(bad), "INVALID_ARGUMENT BAD_ARGUMENT");
  EXPECT_EQ(PrefillText(Prefill("a/b", 0, 1)), "INVALID_ARGUMENT BAD_SESSION_ID");
  EXPECT_EQ(PrefillText(Prefill("", 0, 1)), "INVALID_ARGUMENT BAD_SESSION_ID");
  EXPECT_EQ(PrefillText(Prefill("nobody", 0, 1)), "NOT_FOUND SESSION_UNKNOWN");
  EXPECT_EQ(PrefillText(Prefill(id, -1, 1)), "INVALID_ARGUMENT BAD_ARGUMENT");
  EXPECT_EQ(PrefillText(Prefill(id, int64_t{1} << 62, 1)), "OUT_OF_RANGE PAST_MAX_SEQ_LEN");
  bad = Prefill(id, 0, 2);
  Poison(bad.mutable_hidden(), static_cast<size_t>(d_model()));
  EXPECT_EQ(PrefillText(bad), "INVALID_ARGUMENT NOT_FINITE");
  EXPECT_EQ(engine_.engine().stats().queued_steps, 0);
}

TEST_F(BuildStepTest, AnotherTenantsSessionDoesNotExist) {
  const std::string id = engine_.Create();
  Caller caller = NewCaller();
  caller.tenant = "other";
  EXPECT_EQ(Text(Build(caller, Prefill(id, 0, 1)).status()), "NOT_FOUND SESSION_UNKNOWN");
}

TEST_F(BuildStepTest, AnExpiredDeadlineIsNotQueued) {
  const std::string id = engine_.Create();
  Caller caller = NewCaller();
  caller.deadline = engine_.clock().Now();
  EXPECT_EQ(Text(Build(caller, Prefill(id, 0, 1)).status()), "DEADLINE_EXCEEDED STEP_TIMEOUT");
}

TEST_F(BuildStepTest, ADrainingServerServesARefusingOneDoesNot) {
  const std::string id = engine_.Create();
  admission_.BeginDraining();
  EXPECT_EQ(PrefillText(Prefill(id, 0, 1)), "OK");
  admission_.BeginRefusing();
  EXPECT_EQ(PrefillText(Prefill(id, 0, 1)), "UNAVAILABLE DRAINING");
  EXPECT_EQ(DecodeText(Decode({id}, 0)), "UNAVAILABLE DRAINING");
  v1::RewindSessionRequest rewind;
  rewind.set_session_id(id);
  EXPECT_EQ(Text(BuildRewind(service_, NewCaller(), rewind).status()), "UNAVAILABLE DRAINING");
}

// The last row of a prefix brings all rows held back; the answer's size counts, not the request's.
TEST_F(BuildStepTest, AnAnswerLargerThanAMessageIsKnownBefore) {
  const int64_t row_bytes = d_model() * 4;
  config_.max_message_bytes = 256 + 10 * row_bytes;
  const std::string id = engine_.Create(/*prefix=*/11);
  EXPECT_EQ(PrefillText(Prefill(id, 0, 10)), "OK");  // all held back
  EXPECT_EQ(PrefillText(Prefill(id, 10, 1)), "RESOURCE_EXHAUSTED MESSAGE_TOO_LARGE");
  EXPECT_EQ(PrefillText(Prefill(id, 10, 1), AnswerForm::kParts), "OK");
  v1::PrefillRequest half = Prefill(id, 10, 1);
  half.set_output_dtype(v1::DTYPE_BF16);
  EXPECT_EQ(PrefillText(half), "OK");
  v1::PrefillRequest last = Prefill(id, 10, 1);
  last.set_output_rows(v1::OUTPUT_ROWS_LAST);
  EXPECT_EQ(PrefillText(last), "OK");
  const std::string plain = engine_.Create();
  EXPECT_EQ(PrefillText(Prefill(plain, 0, 10)), "OK");
  EXPECT_EQ(PrefillText(Prefill(plain, 0, 11)), "RESOURCE_EXHAUSTED MESSAGE_TOO_LARGE");
}

TEST_F(BuildStepTest, SequencesOfADecodeFailAlone) {
  const std::string good = engine_.Create();
  const std::string poisoned = engine_.Create();
  v1::DecodeRequest request = Decode({good, "nobody", "bad id", poisoned}, 0);
  request.mutable_sequences(0)->set_num_tokens(2);
  *request.mutable_hidden() = Hidden(1, 5);
  Poison(request.mutable_hidden(), static_cast<size_t>(4 * d_model()));
  const auto built = Build(NewCaller(), request);
  ASSERT_TRUE(built.ok()) << built.status();
  const auto& sequences = built->step->sequences;
  EXPECT_EQ(Text(sequences[0].status), "OK");
  EXPECT_EQ(sequences[0].rows, 2);
  EXPECT_EQ(Text(sequences[1].status), "NOT_FOUND SESSION_UNKNOWN");
  EXPECT_EQ(Text(sequences[2].status), "INVALID_ARGUMENT BAD_SESSION_ID");
  EXPECT_EQ(Text(sequences[3].status), "INVALID_ARGUMENT NOT_FINITE");
}

TEST_F(BuildStepTest, AWholeDecodeFailsForItsBatch) {
  const std::string id = engine_.Create();
  EXPECT_EQ(DecodeText(Decode({id, id}, 0)), "INVALID_ARGUMENT BAD_BATCH");
  v1::DecodeRequest request = Decode({id}, 0);
  request.set_layer(9);
  EXPECT_EQ(DecodeText(request), "INVALID_ARGUMENT BAD_LAYER");
  request = Decode({id}, 0);
  *request.mutable_hidden() = Hidden(1, 2);
  EXPECT_EQ(DecodeText(request), "INVALID_ARGUMENT BAD_BATCH");
  request.clear_sequences();
  EXPECT_EQ(DecodeText(request), "INVALID_ARGUMENT BAD_BATCH");
}

TEST_F(BuildStepTest, WithoutASessionTheEngineIsNotAsked) {
  auto same = Build(NewCaller(), Decode({"nobody", "nothing"}, 0));
  ASSERT_TRUE(same.ok());
  same->step->done = [](std::unique_ptr<Step>) { FAIL() << "refused: it stays with the caller"; };
  EXPECT_EQ(Text(Submit(service_, std::move(same->step))), "NOT_FOUND SESSION_UNKNOWN");

  auto mixed = Build(NewCaller(), Decode({"nobody", "no thing"}, 0));
  ASSERT_TRUE(mixed.ok());
  std::unique_ptr<Step> answered;
  mixed->step->done = [&](std::unique_ptr<Step> step) { answered = std::move(step); };
  EXPECT_EQ(Text(Submit(service_, std::move(mixed->step))), "OK");
  ASSERT_NE(answered, nullptr);
  EXPECT_EQ(answered->output, std::vector<float>(static_cast<size_t>(2 * d_model()), 0.0F));
  EXPECT_EQ(engine_.engine().stats().queued_steps, 0);
}

TEST_F(BuildStepTest, AFailedSequenceStillTellsItsLength) {
  const std::string id = engine_.Create();
  engine_.Run(engine_.Prefill(id, 0, 0, RandomRows(1, 4, d_model())));
  v1::DecodeRequest request = Decode({id, "nobody"}, 4);
  Poison(request.mutable_hidden(), 0);
  const auto built = Build(NewCaller(), request);
  ASSERT_TRUE(built.ok());
  EXPECT_EQ(built->step->sequences[0].length, 4);
}

TEST_F(BuildStepTest, TheShapeForLogsHasNoData) {
  const std::string id = engine_.Create();
  const auto built = Build(NewCaller(), Prefill(id, 7, 3), AnswerForm::kParts);
  ASSERT_TRUE(built.ok());
  EXPECT_EQ(StepShapeText(*built->step), "prefill layer=0 sequences=1 rows=3 position=7");
}

}  // namespace
}  // namespace attnd::server
