#include "cli/table.h"

#include <gtest/gtest.h>

namespace atom::cli {
namespace {

using Align = Table::Align;

TEST(Table, AlignsColumns) {
  Table table({{"tensor"}, {"bytes", Align::kRight}, {"note"}});
  table.add_row({"lm_head", "49152", ""});
  table.add_row({"n\xc3\xa9", "1", "tied"});
  table.add_separator();
  table.add_row({"sum", "49153", ""});
  EXPECT_EQ(table.to_string(),
            "tensor   bytes  note\n"
            "-------  -----  ----\n"
            "lm_head  49152\n"
            "n\xc3\xa9           1  tied\n"
            "-------  -----  ----\n"
            "sum      49153\n");
}

TEST(Table, ShowsNoControlCharacters) {
  Table table({{"name"}});
  table.add_row({"a\x1b[31m\nb"});
  EXPECT_EQ(table.to_string(), "name\n--------\na?[31m?b\n");
}

TEST(TableDeathTest, NeedsOneCellPerColumn) {
  Table table({{"a"}, {"b"}});
  EXPECT_DEATH(table.add_row({"x"}), "1 == 2");
}

}  // namespace
}  // namespace atom::cli
