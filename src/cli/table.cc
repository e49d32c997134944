#include "cli/table.h"

#include <algorithm>

#include "base/check.h"
#include "cli/style.h"

namespace atom::cli {
namespace {

// Code points: right for the Latin text of our tables, an approximation for wide scripts.
size_t display_width(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

}  // namespace

void Table::add_row(std::vector<std::string> cells) {
  CHECK(cells.size() == columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::to_string() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.header));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }

  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string cell = cell_of(i);
      const std::string padding(widths[i] - display_width(cell), ' ');
      if (i > 0) line += "  ";
      line += columns_[i].align == Align::kRight ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  const auto add_rule = [&] { add_line([&](size_t i) { return std::string(widths[i], '-'); }); };

  add_line([&](size_t i) { return columns_[i].header; });
  add_rule();
  for (const auto& row : rows_) {
    if (row.empty()) {
      add_rule();
    } else {
      add_line([&](size_t i) { return row[i]; });
    }
  }
  return text;
}

}  // namespace atom::cli
