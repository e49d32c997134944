#include "cli/line_editor/line_display.h"

#include <gtest/gtest.h>

#include <vector>

namespace atom::cli {
namespace {

// As much of a terminal as the display uses.
class Screen {
 public:
  explicit Screen(int columns) : columns_(columns) {}

  void write(const std::string& bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == '\r') {
        column_ = 0;
      } else if (bytes[i] == '\n') {
        ++row_;
      } else if (bytes[i] == '\x1b') {
        const size_t end = bytes.find_first_of("AJC", i);
        obey(bytes[end], std::atoi(bytes.c_str() + i + 2));
        i = end;
      } else {
        put(bytes[i]);
      }
    }
  }

  // Rows with a bar where the cursor is.
  std::vector<std::string> rows() const {
    std::vector<std::string> result = rows_;
    result.resize(std::max(result.size(), row_ + 1));
    result[row_].resize(std::max(result[row_].size(), column_), ' ');
    result[row_].insert(column_, 1, '|');
    return result;
  }

 private:
  void obey(char letter, int count) {
    if (letter == 'A') row_ -= static_cast<size_t>(count);
    if (letter == 'C') column_ += static_cast<size_t>(count);
    if (letter == 'J') {
      rows_.resize(std::min(rows_.size(), row_ + 1));
      if (row_ < rows_.size()) rows_[row_].resize(std::min(rows_[row_].size(), column_));
    }
  }
  void put(char c) {
    ASSERT_LT(column_, static_cast<size_t>(columns_));
    if (row_ >= rows_.size()) rows_.resize(row_ + 1);
    rows_[row_].resize(std::max(rows_[row_].size(), column_ + 1), ' ');
    rows_[row_][column_++] = c;
  }

  const int columns_;
  std::vector<std::string> rows_;
  size_t row_ = 0;
  size_t column_ = 0;
};

using Rows = std::vector<std::string>;

TEST(LineDisplay, WrapsAndFollowsTheCursor) {
  Screen screen(10);
  LineDisplay display("> ", 2);
  const auto show = [&](std::string_view text, size_t cursor) {
    screen.write(display.show(text, cursor, {10, 24}));
    return screen.rows();
  };
  EXPECT_EQ(show("", 0), Rows({"> |"}));
  EXPECT_EQ(show("abc", 3), Rows({"> abc|"}));
  EXPECT_EQ(show("abcdefgh", 8), Rows({"> abcdefgh", "|"}));
  EXPECT_EQ(show("abcdefghij", 1), Rows({"> a|bcdefgh", "ij"}));
  EXPECT_EQ(show("abcdefghij", 10), Rows({"> abcdefgh", "ij|"}));
  EXPECT_EQ(show("ab", 0), Rows({"> |ab"}));
}

TEST(LineDisplay, BeginsLinesBelowEachOther) {
  Screen screen(20);
  LineDisplay display("> ", 2);
  screen.write(display.show("one\ntwo", 5, {20, 24}));
  EXPECT_EQ(screen.rows(), Rows({"> one", "  t|wo"}));
  screen.write(display.show("one\n", 4, {20, 24}));
  EXPECT_EQ(screen.rows(), Rows({"> one", "  |"}));
}

TEST(LineDisplay, CountsWideCharactersTwice) {
  LineDisplay display("> ", 2);
  // The second does not fit into five columns.
  EXPECT_EQ(display.show("漢字", 6, {5, 24}), "\r\x1b[J> 漢\r\n字\r\x1b[2C");
}

TEST(LineDisplay, ShowsTheRowsAroundTheCursor) {
  Screen screen(20);
  LineDisplay display("> ", 2);
  const std::string text = "a\nb\nc\nd\ne";
  screen.write(display.show(text, text.size(), {20, 3}));
  EXPECT_EQ(screen.rows(), Rows({"  c", "  d", "  e|"}));
  screen.write(display.show(text, 0, {20, 3}));
  EXPECT_EQ(screen.rows(), Rows({"> |a", "  b", "  c"}));
  screen.write(display.show(text, 4, {20, 3}));
  EXPECT_EQ(screen.rows(), Rows({"  b", "  |c", "  d"}));
}

}  // namespace
}  // namespace atom::cli
