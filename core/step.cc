#include "core/step.h"

#include "core/error.h"

namespace attnd {

int64_t Step::rows() const {
  int64_t rows = 0;
  for (const SequenceStep& sequence : sequences) {
    rows += sequence.rows;
  }
  return rows;
}

absl::Status Step::Outcome() const {
  const absl::Status& first = sequences.front().status;
  for (const SequenceStep& sequence : sequences) {
    if (sequence.status.code() != first.code() || ReasonOf(sequence.status) != ReasonOf(first)) {
      return absl::OkStatus();
    }
  }
  return first;
}

}  // namespace attnd
