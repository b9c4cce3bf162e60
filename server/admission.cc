// Whether the server takes a request at all.
#include "server/admission.h"

#include "absl/strings/str_cat.h"
#include "core/error.h"

namespace attnd::server {

absl::Status Admission::AdmitWork() const {
  switch (phase_.load(std::memory_order_acquire)) {
    case Phase::kStarting:
      return MakeRetryableError(Reason::kNotReady, "the server is loading its model", 1000);
    case Phase::kRefusing:
      return MakeRetryableError(Reason::kDraining,
                                "the server is stopping and takes no new steps or sessions", 1000);
    case Phase::kServing:
    case Phase::kDraining:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Admission::AdmitRead() const {
  return phase_.load(std::memory_order_acquire) == Phase::kStarting ? AdmitWork()
                                                                    : absl::OkStatus();
}

void Admission::Advance(Phase to) {
  Phase now = phase_.load();
  while (now < to && !phase_.compare_exchange_weak(now, to)) {
  }
}

absl::Status CheckAnswerSize(int64_t rows, int64_t d_model, DType dtype, int64_t sequences,
                             int64_t max_message_bytes) {
  const int64_t row_bytes = d_model * DTypeSize(dtype);
  const int64_t room = max_message_bytes - AnswerOverhead(sequences);
  if (rows == 0 || rows <= room / row_bytes) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kMessageTooLarge,
                   absl::StrCat("the answer has ", rows, " rows of ", row_bytes,
                                " bytes; a message holds ", max_message_bytes,
                                " (--max_message_bytes). Nothing was appended: use Steps, which "
                                "answers a Prefill in parts, or fewer rows"));
}

}  // namespace attnd::server
