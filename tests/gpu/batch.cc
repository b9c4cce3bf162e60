#include "tests/gpu/batch.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/params.h"

namespace attnd::gpu {
namespace {

constexpr int64_t kNowhere = int64_t{2000000000} << 20;

// How many entries the page tables of all sequences have, and their rows.
int64_t TableEntries(const std::vector<Intervals>& sequences) {
  int64_t entries = 0;
  for (const Intervals& rows : sequences) {
    int64_t end = 0;
    for (const ReferenceInterval& row : rows) {
      end = std::max(end, row.hi);
    }
    entries += end / kernels::kPageTokens + 2;
  }
  return entries;
}

int64_t RowCount(const std::vector<Intervals>& sequences) {
  int64_t rows = 0;
  for (const Intervals& sequence : sequences) {
    rows += static_cast<int64_t>(sequence.size());
  }
  return rows;
}

}  // namespace

Intervals RowsOf(int64_t begin, int64_t end, int64_t prefix, int64_t window) {
  Intervals rows;
  for (int64_t row = begin; row < end; ++row) {
    rows.push_back(kernels::ReferenceVisible(row, prefix, window));
  }
  return rows;
}

RaggedBatch::RaggedBatch(Device& device, std::vector<Intervals> sequences, int64_t page_bytes,
                         Random& random)
    : intervals_(std::move(sequences)),
      device_views_(device, static_cast<int64_t>(intervals_.size())),
      device_lo_(device, RowCount(intervals_)),
      device_hi_(device, RowCount(intervals_)),
      device_pages_(device, TableEntries(intervals_)),
      device_pool_(device, TableEntries(intervals_) * page_bytes) {
  pages_.assign(Index(TableEntries(intervals_)), kNowhere);
  std::vector<int64_t*> used;
  int64_t table = 0;
  for (size_t s = 0; s < intervals_.size(); ++s) {
    kernels::cuda::SequenceView view;
    view.page_table = table;
    view.row_begin = static_cast<int32_t>(rows());
    view.rows = static_cast<int32_t>(intervals_[s].size());
    view.key_begin = INT64_MAX;
    for (const ReferenceInterval& row : intervals_[s]) {
      lo_.push_back(row.lo);
      hi_.push_back(row.hi);
      if (row.lo < row.hi) {
        view.key_begin = std::min(view.key_begin, row.lo);
        view.key_end = std::max(view.key_end, row.hi);
      }
    }
    view.key_begin = std::min(view.key_begin, view.key_end);
    view.first_page = view.key_begin / kernels::kPageTokens;
    views_.push_back(view);
    for (int64_t token = view.key_begin; token < view.key_end; ++token) {
      int64_t* page = &pages_[Index(table + token / kernels::kPageTokens - view.first_page)];
      if (SeesAny(static_cast<int64_t>(s), token) && (used.empty() || used.back() != page)) {
        used.push_back(page);
      }
    }
    table += view.key_end / kernels::kPageTokens + 2 - view.first_page;
  }
  for (size_t i = used.size(); i > 1; --i) {
    std::swap(used[i - 1], used[Index(random.Below(static_cast<int64_t>(i)))]);
  }
  for (size_t i = 0; i < used.size(); ++i) {
    *used[i] = static_cast<int64_t>(i) * page_bytes;
  }
  pool_.assign(used.size() * Index(page_bytes), 0xff);
  device_views_.Set(views_);
  device_lo_.Set(lo_);
  device_hi_.Set(hi_);
  device_pages_.Set(pages_);
}

int64_t RaggedBatch::SequenceOf(int64_t row) const {
  int64_t s = 0;
  while (row >= views_[Index(s)].row_begin + views_[Index(s)].rows) {
    ++s;
  }
  return s;
}

int64_t RaggedBatch::MostWork(const TileShape& tiles) const {
  int64_t work = 1;
  for (int64_t s = 0; s < sequences(); ++s) {
    work += kernels::cuda::TileCount(tiles, views_[Index(s)].rows) *
            (tokens(s) / kernels::kPageTokens + 2);
  }
  return work;
}

ReferenceInterval RaggedBatch::Sees(int64_t row) const {
  const int64_t first = first_token(SequenceOf(row));
  return {lo_[Index(row)] - first, hi_[Index(row)] - first};
}

bool RaggedBatch::SeesAny(int64_t sequence, int64_t token) const {
  const Intervals& rows = intervals_[Index(sequence)];
  return std::any_of(rows.begin(), rows.end(), [token](const ReferenceInterval& row) {
    return row.lo <= token && token < row.hi;
  });
}

int64_t RaggedBatch::PageOffset(int64_t sequence, int64_t token) const {
  const kernels::cuda::SequenceView& view = views_[Index(sequence)];
  return pages_[Index(view.page_table + token / kernels::kPageTokens - view.first_page)];
}

uint8_t* RaggedBatch::Page(int64_t sequence, int64_t token) {
  const int64_t offset = PageOffset(sequence, token);
  Check(offset != kNowhere, "only pages that are seen are written");
  return pool_.data() + offset;
}

void RaggedBatch::Upload() { device_pool_.Set(pool_); }

BatchView RaggedBatch::View(int64_t only) const {
  BatchView view;
  view.pool = device_pool_.data();
  view.sequences = device_views_.data() + std::max<int64_t>(only, 0);
  view.pages = device_pages_.data();
  view.lo = device_lo_.data();
  view.hi = device_hi_.data();
  view.num_sequences = only < 0 ? static_cast<int32_t>(sequences()) : 1;
  return view;
}

ScheduleMemory::ScheduleMemory(Device& device, int64_t sequences, int64_t max_work,
                               int64_t tile_rows, int64_t value_width)
    : work_begin_(device, sequences + 1),
      split_keys_(device, 1),
      arrivals_(device, std::vector<int32_t>(static_cast<size_t>(max_work), 0)),
      partial_(device, max_work * tile_rows * (value_width + 2)),
      max_work_(max_work) {}

Schedule ScheduleMemory::Get() const {
  Schedule schedule;
  schedule.work_begin = work_begin_.data();
  schedule.split_keys = split_keys_.data();
  schedule.arrivals = arrivals_.data();
  schedule.partial = partial_.data();
  schedule.max_work = static_cast<int32_t>(max_work_);
  return schedule;
}

bool ScheduleMemory::Quiet() const {
  const std::vector<int32_t> arrivals = arrivals_.Get();
  return std::all_of(arrivals.begin(), arrivals.end(), [](int32_t n) { return n == 0; });
}

}  // namespace attnd::gpu
