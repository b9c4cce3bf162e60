#include "tests/kernels/cuda/cuda_case.h"

#include <algorithm>
#include <cstring>

namespace attnd::kernels::cuda {
namespace {

size_t Size(int64_t n) { return static_cast<size_t>(n); }

}  // namespace

void CudaCase::MakeTable() {
  for (const std::vector<int64_t>& pages : pages_) {
    table_.insert(table_.end(), pages.begin(), pages.end());
  }
}

void CudaCase::MovePool(uint8_t* pool, const std::vector<int64_t>& bytes) {
  moved_ = pool;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::memcpy(pool + bytes[i], pool_.data() + static_cast<int64_t>(i) * page_bytes_,
                Size(page_bytes_));
  }
  for (int64_t& page : table_) {
    if (page < static_cast<int64_t>(pool_.size())) {
      page = bytes[Size(page / page_bytes_)];
    }
  }
}

BatchView CudaCase::Rows() const {
  BatchView batch;
  batch.pool = moved_ != nullptr ? moved_ : pool_.data();
  batch.pages = table_.data();
  batch.lo = lo_.data();
  batch.hi = hi_.data();
  return batch;
}

std::vector<SequenceView> CudaCase::Views(const std::vector<int32_t>& only) const {
  std::vector<SequenceView> all;
  int64_t table = 0;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    SequenceView view;
    view.page_table = table;
    view.first_page = sequences_[s].first_page;
    view.key_begin = first_[s];
    view.key_end = end_[s];
    view.row_begin = static_cast<int32_t>(sequences_[s].row_begin);
    view.rows = static_cast<int32_t>(sequences_[s].rows);
    table += static_cast<int64_t>(pages_[s].size());
    all.push_back(view);
  }
  if (only.empty()) {
    return all;
  }
  std::vector<SequenceView> views;
  for (const int32_t s : only) {
    views.push_back(all[Size(s)]);
  }
  return views;
}

std::vector<float> CudaCase::RowsOfSequence(const std::vector<float>& output, int64_t sequence,
                                            int64_t width) const {
  const AttentionSequence& rows = sequences_[Size(sequence)];
  return {output.begin() + rows.row_begin * width,
          output.begin() + (rows.row_begin + rows.rows) * width};
}

Splits::Splits(Stream& stream, const std::vector<SequenceView>& views, const TileShape& tiles,
               int64_t partial_floats, const SplitOptions& options)
    : work_begin_(views.size() + 1, -1),
      arrivals_(Size(options.max_work), 0),
      partial_(Size(options.max_work * partial_floats), kNoNumber) {
  ScheduleParams params;
  params.sequences = views.data();
  params.schedule = schedule();
  params.tiles = tiles;
  params.num_sequences = static_cast<int32_t>(views.size());
  params.split_keys = options.split_keys;
  params.blocks = options.blocks;
  LaunchSchedule(stream, params);
}

Schedule Splits::schedule() {
  return {work_begin_.data(), &split_keys_, arrivals_.data(), partial_.data(),
          static_cast<int32_t>(arrivals_.size())};
}

bool Splits::AllArrived() const {
  return std::all_of(arrivals_.begin(), arrivals_.end(), [](int32_t n) { return n == 0; });
}

}  // namespace attnd::kernels::cuda
