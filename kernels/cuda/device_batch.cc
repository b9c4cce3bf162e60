#include "kernels/cuda/device_batch.h"

#include <algorithm>
#include <cstring>

#include "kernels/check.h"

namespace attnd::kernels::cuda {
namespace {

// Page tables of a launch: 8 MiB, the pages of 64 million tokens. A batch with more is cut.
constexpr int64_t kPageEntries = 1 << 20;

constexpr auto kWord = static_cast<int64_t>(sizeof(int64_t));
constexpr auto kViewBytes = static_cast<int64_t>(sizeof(SequenceView));

int64_t PlaceBytes(int64_t rows, int64_t sequences) {
  return (sequences * kViewBytes + 2 * rows * kWord + 255) / 256 * 256;
}

int64_t PagesOf(const SequenceView& view) {
  return view.key_begin < view.key_end ? (view.key_end - 1) / kPageTokens - view.first_page + 1 : 0;
}

}  // namespace

KeySpan SpanOf(const AttentionBatch& batch, int64_t row_begin, int64_t rows) {
  KeySpan span;
  for (int64_t row = row_begin; row < row_begin + rows; ++row) {
    if (batch.lo[row] < batch.hi[row]) {
      span.begin = span.begin == span.end ? batch.lo[row] : std::min(span.begin, batch.lo[row]);
      span.end = std::max(span.end, batch.hi[row]);
    }
  }
  return span;
}

absl::Status BatchStore::Prepare(std::shared_ptr<Runtime> runtime, const BatchLimits& limits) {
  max_rows_ = limits.max_rows;
  max_sequences_ = limits.max_sequences;
  max_span_ = SpanLimit(limits);
  page_capacity_ = std::max(kPageEntries, max_span_ / kPageTokens + 3);
  absl::Status status = places_.Allocate(
      runtime, "sequences of a batch",
      PlaceBytes(max_rows_, max_sequences_) + kGraphCalls * PlaceBytes(kGraphRows, kGraphRows));
  status.Update(pages_.Allocate(runtime, "page tables", page_capacity_ * kWord));
  return status;
}

uint8_t* BatchStore::Place(int call) const {
  return call == 0 ? places_.data()
                   : places_.data() + PlaceBytes(max_rows_, max_sequences_) +
                         (call - 1) * PlaceBytes(kGraphRows, kGraphRows);
}

BatchStore::Entry BatchStore::Describe(const AttentionBatch& batch,
                                       const AttentionSequence& sequence,
                                       const Classify& classify) const {
  const KeySpan span = SpanOf(batch, sequence.row_begin, sequence.rows);
  Check(span.end - span.begin <= max_span_,
        "a sequence spans no more keys than Prepare() was told");
  Entry entry;
  entry.view.key_begin = span.begin;
  entry.view.key_end = span.end;
  entry.view.first_page = span.begin / kPageTokens;
  entry.view.row_begin = static_cast<int32_t>(sequence.row_begin);
  entry.view.rows = static_cast<int32_t>(sequence.rows);
  entry.pages = sequence.pages + (entry.view.first_page - sequence.first_page);
  entry.place = classify(sequence.rows, span.begin, span.end);
  return entry;
}

bool BatchStore::FitsGraph(const AttentionBatch& batch) const {
  int64_t pages = used_pages_;
  int64_t rows = 0;
  for (int64_t i = 0; i < batch.num_sequences; ++i) {
    const AttentionSequence& s = batch.sequences[i];
    const KeySpan span = SpanOf(batch, s.row_begin, s.rows);
    pages += (span.end - span.begin) / kPageTokens + 2;
    rows = std::max(rows, s.row_begin + s.rows);
  }
  return rows <= kGraphRows && batch.num_sequences <= kGraphRows && pages <= page_capacity_;
}

std::vector<SequenceView> BatchStore::views() const {
  std::vector<SequenceView> views;
  for (const Entry& entry : entries_) {
    views.push_back(entry.view);
  }
  return views;
}

DeviceBatch BatchStore::Put(Staging* staging, const AttentionBatch& batch, const Classify& classify,
                            int call, int64_t* next) {
  if (call == 0) {
    used_pages_ = 0;
  }
  entries_.clear();
  DeviceBatch put;
  uint8_t* place = Place(call);
  int64_t pages = used_pages_;
  for (; *next < batch.num_sequences; ++*next) {
    Entry entry = Describe(batch, batch.sequences[*next], classify);
    if (pages + PagesOf(entry.view) > page_capacity_) {
      break;
    }
    entry.view.page_table = pages;
    pages += PagesOf(entry.view);
    put.rows = std::max(put.rows, entry.view.row_begin + entry.view.rows);
    put.class_sequences[entry.place] += 1;
    put.class_rows[entry.place] = std::max<int64_t>(put.class_rows[entry.place], entry.view.rows);
    entries_.push_back(entry);
  }
  Check(!entries_.empty() || batch.num_sequences == 0, "the page table of a sequence has room");
  Check(put.rows <= max_rows_ && static_cast<int64_t>(entries_.size()) <= max_sequences_,
        "a batch is within the limits of Prepare()");
  for (const Entry& entry : entries_) {
    staging->Upload(pages_.as<int64_t>() + entry.view.page_table, entry.pages,
                    PagesOf(entry.view) * kWord);
  }
  used_pages_ = pages;
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.place != b.place ? a.place < b.place : a.view.row_begin < b.view.row_begin;
  });
  const auto count = static_cast<int64_t>(entries_.size());
  const int64_t bytes = count * kViewBytes + 2 * put.rows * kWord;
  uint8_t* staged = staging->Reserve(place, bytes);
  for (const Entry& entry : entries_) {
    std::memcpy(staged, &entry.view, sizeof(entry.view));
    staged += sizeof(entry.view);
  }
  const auto row_bytes = static_cast<size_t>(put.rows * kWord);
  std::memcpy(staged, batch.lo, row_bytes);
  std::memcpy(staged + row_bytes, batch.hi, row_bytes);
  put.view.pool = batch.pool;
  put.view.sequences = reinterpret_cast<SequenceView*>(place);
  put.view.pages = pages_.as<int64_t>();
  put.view.lo = reinterpret_cast<int64_t*>(place + count * kViewBytes);
  put.view.hi = put.view.lo + put.rows;
  put.view.num_sequences = static_cast<int32_t>(count);
  return put;
}

}  // namespace attnd::kernels::cuda
