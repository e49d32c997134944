#include "cli/line_editor/line_display.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <vector>

namespace atom::cli {
namespace {

// A text as rows of a terminal.
struct Layout {
  std::vector<std::string> rows{""};
  int cursor_row = 0;
  int cursor_column = 0;
};

class Filler {
 public:
  Filler(int columns, int indent) : columns_(columns), indent_(indent), column_(indent) {}

  void mark_cursor() {
    layout_.cursor_row = static_cast<int>(layout_.rows.size()) - 1;
    layout_.cursor_column = column_;
  }
  // Lines of the text begin below each other.
  void end_line() { begin_row(indent_); }
  void add(std::string_view character, int width) {
    if (column_ + width > columns_) begin_row(0);
    layout_.rows.back() += character;
    column_ += width;
    // A terminal's cursor cannot stand behind the last column.
    if (column_ == columns_) begin_row(0);
  }
  Layout take() { return std::move(layout_); }

 private:
  void begin_row(int indent) {
    layout_.rows.emplace_back(static_cast<size_t>(indent), ' ');
    column_ = indent;
  }

  const int columns_;
  const int indent_;
  int column_;
  Layout layout_;
};

Layout lay_out(std::string_view text, size_t cursor, int columns, int prompt_width) {
  Filler filler(columns, prompt_width);
  for (size_t i = 0; i < text.size();) {
    if (i == cursor) filler.mark_cursor();
    utf8proc_int32_t code = 0;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + i;
    const auto size = std::max<utf8proc_ssize_t>(
        1, utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - i), &code));
    if (code == '\n') {
      filler.end_line();
    } else if (code == '\t') {
      filler.add(" ", 1);
    } else {
      filler.add(text.substr(i, static_cast<size_t>(size)), utf8proc_charwidth(code));
    }
    i += static_cast<size_t>(size);
  }
  if (cursor >= text.size()) filler.mark_cursor();
  return filler.take();
}

}  // namespace

std::string LineDisplay::show(std::string_view text, size_t cursor, Size size) {
  const int columns = std::max(size.columns, prompt_width_ + 2);
  const Layout layout = lay_out(text, cursor, columns, prompt_width_);
  const int num_rows = static_cast<int>(layout.rows.size());
  const int num_shown = std::min(num_rows, std::max(size.rows, 1));
  const int first = std::clamp(layout.cursor_row - num_shown / 2, 0, num_rows - num_shown);
  std::string out = "\r";
  if (cursor_row_ > 0) out += fmt::format("\x1b[{}A", cursor_row_);
  out += "\x1b[J";  // what is below
  for (int row = first; row < first + num_shown; ++row) {
    if (row > first) out += "\r\n";
    if (row == 0) out += prompt_;
    out += layout.rows[static_cast<size_t>(row)];
  }
  const int last = first + num_shown - 1;
  if (last > layout.cursor_row) out += fmt::format("\x1b[{}A", last - layout.cursor_row);
  out += "\r";
  if (layout.cursor_column > 0) out += fmt::format("\x1b[{}C", layout.cursor_column);
  cursor_row_ = layout.cursor_row - first;
  return out;
}

}  // namespace atom::cli
