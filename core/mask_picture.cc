// Drawing of the visible intervals.
#include "core/mask_picture.h"

#include "absl/strings/str_format.h"
#include "core/error.h"
#include "core/visible.h"

namespace attnd {
namespace {

constexpr int64_t kMaxLength = 1024;  // 3 MB of text
constexpr int kLabelWidth = 9;        // "Position:"

absl::Status CheckArguments(int64_t length, int64_t prefix, int64_t window) {
  if (length < 1 || length > kMaxLength) {
    return MakeError(Reason::kBadArgument,
                     absl::StrFormat("len is %d; expected 1 to %d", length, kMaxLength));
  }
  if (prefix < 0) {
    return MakeError(Reason::kBadArgument,
                     absl::StrFormat("prefix is %d; expected 0 or more", prefix));
  }
  if (window < 1) {
    return MakeError(Reason::kBadArgument,
                     absl::StrFormat("window is %d; expected 1 or more", window));
  }
  return absl::OkStatus();
}

// What is said beside a row, or nothing.
const char* Remark(LayerKind kind, int64_t row, int64_t prefix) {
  if (row == prefix) {
    return kind == LayerKind::kGlobal ? "   ← full causal" : "   ← window only";
  }
  return row == 0 ? "   ← prefix bidir" : "";
}

}  // namespace

absl::StatusOr<std::string> MaskPicture(LayerKind kind, int64_t length, int64_t prefix,
                                        int64_t window) {
  if (absl::Status status = CheckArguments(length, prefix, window); !status.ok()) {
    return status;
  }
  const int width = length > 1000 ? 5 : length > 100 ? 4 : 3;  // a space before the longest number
  std::string text(20, ' ');
  text += kind == LayerKind::kGlobal ? "Global layer (full causal)\n"
                                     : absl::StrFormat("Local layer (window=%d)\n", window);
  text += "Position:";
  for (int64_t key = 0; key < length; ++key) {
    text += absl::StrFormat("%*d", width, key);
  }
  text += '\n';
  for (int64_t row = 0; row < length; ++row) {
    const std::string label = absl::StrFormat("%5d:", row);
    text += label + std::string(kLabelWidth - label.size(), ' ');
    const Interval seen = Visible(kind, row, prefix, window);
    for (int64_t key = 0; key < length; ++key) {
      text.append(width - 1, ' ');
      text += key >= seen.lo && key < seen.hi ? "█" : "·";
    }
    text += Remark(kind, row, prefix);
    text += '\n';
  }
  return text;
}

}  // namespace attnd
