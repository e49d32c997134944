// A table of text with aligned columns, for a terminal or a file.
#pragma once

#include <string>
#include <vector>

namespace atom::cli {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string header;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column. Control characters are replaced: cells may hold names from a file.
  void add_row(std::vector<std::string> cells);

  // A line between the rows before and after, such as above a sum.
  void add_separator() { rows_.push_back({}); }

  // Header, separator, rows; every line ends with a line feed and without trailing spaces.
  std::string to_string() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a separator
};

}  // namespace atom::cli
