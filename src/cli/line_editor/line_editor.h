// A text of one or more lines that is being typed: where the cursor is, what keys do to it, and
// what was typed before. Does no input or output.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/line_editor/key_decoder.h"

namespace atom::cli {

class LineEditor {
 public:
  enum class Action {
    kNothing,  // beside what the text says
    kAccept,   // the text is complete
    kEnd,      // Ctrl-D without text
    kLeave,    // Ctrl-C without text
    kClearScreen,
    kSuspend,
  };

  // `history`: what was typed before, the oldest first; outlives the editor.
  explicit LineEditor(const std::vector<std::string>* history) : history_(history) {}

  // Begins an empty text.
  void start();
  Action press(const KeyPress& press);

  const std::string& text() const { return text_; }  // valid UTF-8
  size_t cursor() const { return cursor_; }          // byte of text() that it stands before

 private:
  Action control(char letter);
  void insert(const std::string& text);
  void erase(size_t begin, size_t end);
  void cut(size_t begin, size_t end);
  void set(std::string text);
  size_t before(size_t position) const;  // the character before, with what is combined with it
  size_t after(size_t position) const;
  size_t word_before() const;
  size_t word_after() const;
  size_t line_begin() const;
  size_t line_end() const;
  // One line up or down in the text, else to what was typed before or after.
  void go_up();
  void go_down();
  void recall(size_t index);
  Action enter();

  const std::vector<std::string>* const history_;
  std::string text_;
  size_t cursor_ = 0;
  std::string cut_;      // for Ctrl-Y
  size_t recalled_ = 0;  // index into the history; its size: the draft
  std::string draft_;    // what was being typed when older texts were looked at
};

}  // namespace atom::cli
