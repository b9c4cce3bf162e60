// The host's part of a ragged batch, put where the kernels read it: at addresses that depend on
// nothing but the numbers of rows and sequences, so that a graph recorded for one step is right for
// the next, with longer histories and other pages.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/staging.h"
#include "kernels/params.h"

namespace attnd::kernels::cuda {

// Steps of up to so many rows may be graphs; a layer of one has so many calls of attention.
inline constexpr int64_t kGraphRows = 64;
inline constexpr int kGraphCalls = 4;

// Sequences that are launched together, by what each has alone.
inline constexpr int kMaxClasses = 6;

struct DeviceBatch {
  BatchView view;
  int32_t rows = 0;  // one past the highest row of a sequence
  // Sequences of class 0 come first, those of a class in the order of their rows.
  int32_t class_sequences[kMaxClasses] = {};
  int64_t class_rows[kMaxClasses] = {};  // of its longest sequence

  bool operator==(const DeviceBatch&) const = default;
};

// The class of a sequence of so many rows that sees the keys [begin, end).
using Classify = std::function<int(int64_t rows, int64_t begin, int64_t end)>;

// Keys that the rows of a sequence span together: each sees up to max_keys, one more than the last.
inline int64_t SpanLimit(const BatchLimits& limits) { return limits.max_keys + limits.max_rows; }

class BatchStore {
 public:
  absl::Status Prepare(std::shared_ptr<Runtime> runtime, const BatchLimits& limits);

  // Puts the sequences of `batch` from *next on, as many as the page tables have room for, and
  // moves *next behind them. With `call` 0 what was put before is overwritten, which is right for
  // what was launched before; calls 1 to kGraphCalls of a graph have places of their own for up to
  // kGraphRows rows, and pages after each other from BeginGraph() on.
  DeviceBatch Put(Staging* staging, const AttentionBatch& batch, const Classify& classify, int call,
                  int64_t* next);
  // Whether all of `batch` fits into a graph's call.
  bool FitsGraph(const AttentionBatch& batch) const;
  void BeginGraph() { used_pages_ = 0; }

  // Of the sequences of the last Put(), in their order on the device.
  std::vector<SequenceView> views() const;

 private:
  struct Entry {
    SequenceView view;
    int place = 0;  // class
    const int64_t* pages = nullptr;
  };
  Entry Describe(const AttentionBatch& batch, const AttentionSequence& sequence,
                 const Classify& classify) const;
  uint8_t* Place(int call) const;

  OwnedDeviceMemory places_, pages_;
  int64_t max_rows_ = 0;
  int64_t max_sequences_ = 0;
  int64_t max_span_ = 0;
  int64_t page_capacity_ = 0;
  int64_t used_pages_ = 0;
  std::vector<Entry> entries_;
};

// The pages of keys that a sequence's rows span, as [begin, end) of tokens; empty: both 0.
struct KeySpan {
  int64_t begin = 0;
  int64_t end = 0;
};
KeySpan SpanOf(const AttentionBatch& batch, int64_t row_begin, int64_t rows);

}  // namespace attnd::kernels::cuda
