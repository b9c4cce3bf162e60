// A table of text: the first column left-aligned, the others to the right. What would steer a
// terminal is shown as \xNN.
#pragma once

#include <string>
#include <vector>

namespace attnd::attnctl {

class Table {
 public:
  explicit Table(std::vector<std::string> header = {});
  void Row(std::vector<std::string> cells);
  // Columns apart by two spaces, lines ending in '\n'; a rule stands under the header.
  std::string ToString() const;

 private:
  bool has_header_ = false;
  std::vector<std::vector<std::string>> rows_;
};

// Names and values: both to the left.
class List {
 public:
  void Item(const std::string& name, const std::string& value);
  std::string ToString() const;

 private:
  std::vector<std::pair<std::string, std::string>> items_;
};

}  // namespace attnd::attnctl
