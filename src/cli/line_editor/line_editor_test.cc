#include "cli/line_editor/line_editor.h"

#include <gtest/gtest.h>

namespace atom::cli {
namespace {

class LineEditorTest : public testing::Test {
 protected:
  LineEditorTest() { editor_.start(); }

  // Types bytes as a terminal sends them; the last action that was one.
  LineEditor::Action type(std::string_view bytes) {
    LineEditor::Action last = LineEditor::Action::kNothing;
    decoder_.feed(bytes);
    while (const std::optional<KeyPress> press = decoder_.next()) {
      const LineEditor::Action action = editor_.press(*press);
      if (action != LineEditor::Action::kNothing) last = action;
    }
    return last;
  }
  // The text with a bar where the cursor is.
  std::string shown() const {
    std::string text = editor_.text();
    return text.insert(editor_.cursor(), 1, '|');
  }

  std::vector<std::string> history_ = {"first", "two\nlines", "last"};
  LineEditor editor_{&history_};
  KeyDecoder decoder_;
};

constexpr const char* kLeft = "\x1b[D";
constexpr const char* kRight = "\x1b[C";
constexpr const char* kUp = "\x1b[A";
constexpr const char* kDown = "\x1b[B";
constexpr const char* kHome = "\x1b[H";

TEST_F(LineEditorTest, MovesAndErasesByCharacters) {
  type("ab🚀é");
  type("e\u0301");  // an accent of its own goes with its letter
  EXPECT_EQ(shown(), "ab🚀ée\u0301|");
  type(kLeft);
  EXPECT_EQ(shown(), "ab🚀é|e\u0301");
  type("\x7f\x7f");
  EXPECT_EQ(shown(), "ab|e\u0301");
  type("\x1b[3~\x1b[3~");
  EXPECT_EQ(shown(), "ab|");
  type(kHome);
  type("x");
  EXPECT_EQ(shown(), "x|ab");
  type(kRight);
  type("\x05y");
  EXPECT_EQ(shown(), "xaby|");
}

TEST_F(LineEditorTest, MovesAndCutsByWords) {
  type("one two three");
  type("\x1b[1;5D\x1b[1;5D");
  EXPECT_EQ(shown(), "one |two three");
  type("\x1b[1;5C");
  EXPECT_EQ(shown(), "one two| three");
  type("\x17");
  EXPECT_EQ(shown(), "one | three");
  type("\x0b");
  EXPECT_EQ(shown(), "one |");
  type("\x19\x19");
  EXPECT_EQ(shown(), "one  three three|");
  type("\x15");
  EXPECT_EQ(shown(), "|");
}

TEST_F(LineEditorTest, HasSeveralLines) {
  EXPECT_EQ(type("one\\\r"), LineEditor::Action::kNothing);
  EXPECT_EQ(shown(), "one\n|");
  type("longer\x1b\rend");
  EXPECT_EQ(shown(), "one\nlonger\nend|");
  type(kUp);
  EXPECT_EQ(shown(), "one\nlon|ger\nend");
  type("\x05");
  type(kUp);
  EXPECT_EQ(shown(), "one|\nlonger\nend");
  type(kDown);
  type(kHome);
  EXPECT_EQ(shown(), "one\n|longer\nend");
  EXPECT_EQ(type("\r"), LineEditor::Action::kAccept);
  EXPECT_EQ(editor_.text(), "one\nlonger\nend");
}

TEST_F(LineEditorTest, PastesWithoutSending) {
  EXPECT_EQ(type("\x1b[200~int main() {\n}\n\x1b[201~"), LineEditor::Action::kNothing);
  EXPECT_EQ(shown(), "int main() {\n}\n|");
}

TEST_F(LineEditorTest, RecallsWhatWasTyped) {
  type("draft");
  type(kUp);
  EXPECT_EQ(shown(), "last|");
  type(kUp);
  EXPECT_EQ(shown(), "two\nlines|");
  type(kUp);
  EXPECT_EQ(shown(), "two|\nlines");
  type(kUp);
  type(kUp);
  EXPECT_EQ(shown(), "first|");
  for (int i = 0; i < 4; ++i) type(kDown);
  EXPECT_EQ(shown(), "draft|");
}

TEST_F(LineEditorTest, LeavesOnlyWithoutText) {
  type("text");
  EXPECT_EQ(type("\x03"), LineEditor::Action::kNothing);
  EXPECT_EQ(shown(), "|");
  EXPECT_EQ(type("\x03"), LineEditor::Action::kLeave);
  type("text");
  type(kHome);
  EXPECT_EQ(type("\x04"), LineEditor::Action::kNothing);
  EXPECT_EQ(shown(), "|ext");
  type("\x0b");
  EXPECT_EQ(type("\x04"), LineEditor::Action::kEnd);
}

}  // namespace
}  // namespace atom::cli
