// Between the wire and core.
#include "server/wire.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/error.h"
#include "kernels/convert.h"

namespace attnd::server {
namespace {

// Elements made float32 in the same pass: 16 KiB, so that the zeros that a vector grows by are
// overwritten while they are in the L1 cache. Growing 1 MiB at once is a second pass over memory.
constexpr int64_t kBlock = 4096;

// Reads elements off pieces that are cut anywhere, within elements too.
class ElementReader {
 public:
  ElementReader(const std::vector<std::string_view>& pieces, DType dtype)
      : next_(pieces.begin()), dtype_(dtype) {}

  // The next `n` elements; there are so many. False when one is a NaN or an infinity.
  bool Read(int64_t n, float* to) {
    bool finite = true;
    while (n > 0) {
      const int64_t whole = std::min(n, static_cast<int64_t>(rest_.size()) / DTypeSize(dtype_));
      if (whole > 0) {
        finite &= kernels::ToFloat(dtype_, rest_.data(), whole, to);
        rest_.remove_prefix(static_cast<size_t>(whole * DTypeSize(dtype_)));
        to += whole;
        n -= whole;
      } else if (rest_.empty()) {
        rest_ = *next_++;
      } else {
        finite &= ReadCut(to++);
        --n;
      }
    }
    return finite;
  }

 private:
  // An element that lies in several pieces.
  bool ReadCut(float* to) {
    char element[sizeof(float)];
    for (int64_t i = 0; i < DTypeSize(dtype_); ++i) {
      while (rest_.empty()) {
        rest_ = *next_++;
      }
      element[i] = rest_.front();
      rest_.remove_prefix(1);
    }
    return kernels::ToFloat(dtype_, element, 1, to);
  }

  std::vector<std::string_view>::const_iterator next_;
  std::string_view rest_;
  DType dtype_;
};

void WriteTimestamp(int64_t wall_ns, google::protobuf::Timestamp* timestamp) {
  timestamp->set_seconds(wall_ns / 1'000'000'000);
  timestamp->set_nanos(static_cast<int32_t>(wall_ns % 1'000'000'000));
}

}  // namespace

void ReadHidden(const TensorBytes& bytes, DType dtype, int64_t d_model, Step* step) {
  step->hidden.reserve(static_cast<size_t>(bytes.size / DTypeSize(dtype)));
  ElementReader reader(bytes.pieces, dtype);
  for (size_t i = 0; i < step->sequences.size(); ++i) {
    SequenceStep& sequence = step->sequences[i];
    bool finite = true;
    for (int64_t left = sequence.rows * d_model; left > 0;) {
      const int64_t block = std::min(left, kBlock);
      const size_t done = step->hidden.size();
      step->hidden.resize(done + static_cast<size_t>(block));
      finite &= reader.Read(block, step->hidden.data() + done);
      left -= block;
    }
    if (!finite && sequence.status.ok()) {
      const std::string which =
          step->kind == StepKind::kDecode ? absl::StrCat(" in the rows of sequences[", i, "]") : "";
      sequence.status = MakeError(
          Reason::kNotFinite,
          absl::StrCat("hidden.data has a NaN or an infinity", which, "; expected finite values"));
    }
  }
}

void WriteSession(const SessionInfo& info, v1::Session* session) {
  session->set_session_id(info.id);
  session->set_prefix_length(info.prefix_length);
  session->set_max_tokens(info.max_tokens);
  session->mutable_layer_lengths()->Add(info.layer_lengths.begin(), info.layer_lengths.end());
  session->set_rewind_floor(info.rewind_floor);
  session->set_cache_bytes(info.cache_bytes);
  session->set_reserved_bytes(info.reserved_bytes);
  WriteTimestamp(info.create_wall_ns, session->mutable_create_time());
  WriteTimestamp(info.expire_wall_ns, session->mutable_expire_time());
  session->set_affinity_key(info.affinity_key);
}

}  // namespace attnd::server
