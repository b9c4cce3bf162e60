// Columns of text, lined up.
#include "client/attnctl/table.h"

#include <algorithm>
#include <utility>

#include "client/attnctl/shown.h"

namespace attnd::attnctl {
namespace {

constexpr size_t kGap = 2;

std::string TrimRight(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

Table::Table(std::vector<std::string> header) : has_header_(!header.empty()) {
  if (has_header_) {
    Row(std::move(header));
  }
}

void Table::Row(std::vector<std::string> cells) {
  for (std::string& cell : cells) {
    cell = Shown(cell);
  }
  rows_.push_back(std::move(cells));
}

std::string Table::ToString() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  std::string text;
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      const std::string pad(widths[c] - rows_[r][c].size(), ' ');
      line += c == 0 ? rows_[r][c] + pad : std::string(kGap, ' ') + pad + rows_[r][c];
    }
    text += TrimRight(line) + "\n";
    if (r == 0 && has_header_) {
      size_t total = 0;
      for (size_t width : widths) {
        total += width;
      }
      text += std::string(total + kGap * (widths.size() - 1), '-') + "\n";
    }
  }
  return text;
}

void List::Item(const std::string& name, const std::string& value) {
  items_.emplace_back(Shown(name), Shown(value));
}

std::string List::ToString() const {
  size_t width = 0;
  for (const auto& item : items_) {
    width = std::max(width, item.first.size());
  }
  std::string text;
  for (const auto& item : items_) {
    text += item.first + std::string(width - item.first.size() + kGap, ' ') + item.second + "\n";
  }
  return text;
}

}  // namespace attnd::attnctl
