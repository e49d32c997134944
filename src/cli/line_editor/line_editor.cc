#include "cli/line_editor/line_editor.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

namespace atom::cli {
namespace {

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

// Whether the character at `position` is drawn onto the one before it.
bool is_combined(const std::string& text, size_t position) {
  utf8proc_int32_t code = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position;
  if (utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - position), &code) <= 0) {
    return false;
  }
  return code != '\n' && code != '\t' && utf8proc_charwidth(code) == 0;
}

bool is_blank(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t';
}

}  // namespace

void LineEditor::start() {
  set("");
  draft_.clear();
  recalled_ = history_->size();
}

LineEditor::Action LineEditor::press(const KeyPress& press) {
  switch (press.key) {
    case Key::kText:
    case Key::kPaste:
      insert(press.text);
      break;
    case Key::kControl:
      return control(press.text[0]);
    case Key::kAlt:
      if (press.text == "d") cut(cursor_, word_after());
      if (press.text == "\x7f") cut(word_before(), cursor_);
      break;
    case Key::kEnter:
      return enter();
    case Key::kNewline:
      insert("\n");
      break;
    case Key::kBackspace:
      erase(before(cursor_), cursor_);
      break;
    case Key::kDelete:
      erase(cursor_, after(cursor_));
      break;
    case Key::kLeft:
      cursor_ = before(cursor_);
      break;
    case Key::kRight:
      cursor_ = after(cursor_);
      break;
    case Key::kUp:
      go_up();
      break;
    case Key::kDown:
      go_down();
      break;
    case Key::kHome:
      cursor_ = line_begin();
      break;
    case Key::kEnd:
      cursor_ = line_end();
      break;
    case Key::kWordLeft:
      cursor_ = word_before();
      break;
    case Key::kWordRight:
      cursor_ = word_after();
      break;
  }
  return Action::kNothing;
}

LineEditor::Action LineEditor::control(char letter) {
  switch (letter) {
    case 'a':
      return press({Key::kHome});
    case 'b':
      return press({Key::kLeft});
    case 'c':
      if (text_.empty()) return Action::kLeave;
      start();
      break;
    case 'd':
      if (text_.empty()) return Action::kEnd;
      return press({Key::kDelete});
    case 'e':
      return press({Key::kEnd});
    case 'f':
      return press({Key::kRight});
    case 'k':
      cut(cursor_, line_end());
      break;
    case 'l':
      return Action::kClearScreen;
    case 'n':
      return press({Key::kDown});
    case 'p':
      return press({Key::kUp});
    case 'u':
      cut(line_begin(), cursor_);
      break;
    case 'w':
      cut(word_before(), cursor_);
      break;
    case 'y':
      insert(cut_);
      break;
    case 'z':
      return Action::kSuspend;
    default:
      break;
  }
  return Action::kNothing;
}

// A backslash before it makes it a line end.
LineEditor::Action LineEditor::enter() {
  if (cursor_ == text_.size() && text_.ends_with('\\')) {
    erase(cursor_ - 1, cursor_);
    insert("\n");
    return Action::kNothing;
  }
  cursor_ = text_.size();
  return Action::kAccept;
}

void LineEditor::insert(const std::string& text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

void LineEditor::erase(size_t begin, size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

void LineEditor::cut(size_t begin, size_t end) {
  if (begin == end) return;
  cut_ = text_.substr(begin, end - begin);
  erase(begin, end);
}

void LineEditor::set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

size_t LineEditor::before(size_t position) const {
  if (position == 0) return 0;
  do {
    --position;
  } while (position > 0 && (is_continuation(text_[position]) || is_combined(text_, position)));
  return position;
}

size_t LineEditor::after(size_t position) const {
  if (position == text_.size()) return position;
  do {
    ++position;
  } while (position < text_.size() &&
           (is_continuation(text_[position]) || is_combined(text_, position)));
  return position;
}

size_t LineEditor::word_before() const {
  size_t position = cursor_;
  while (position > 0 && is_blank(text_[position - 1])) --position;
  while (position > 0 && !is_blank(text_[position - 1])) --position;
  return position;
}

size_t LineEditor::word_after() const {
  size_t position = cursor_;
  while (position < text_.size() && is_blank(text_[position])) ++position;
  while (position < text_.size() && !is_blank(text_[position])) ++position;
  return position;
}

size_t LineEditor::line_begin() const {
  if (cursor_ == 0) return 0;
  const size_t end = text_.rfind('\n', cursor_ - 1);
  return end == std::string::npos ? 0 : end + 1;
}

size_t LineEditor::line_end() const {
  return std::min(text_.find('\n', cursor_), text_.size());
}

void LineEditor::go_up() {
  const size_t begin = line_begin();
  if (begin == 0) {
    if (recalled_ > 0) recall(recalled_ - 1);
    return;
  }
  const size_t column = cursor_ - begin;
  cursor_ = begin - 1;  // the end of the line above
  const size_t above = line_begin();
  cursor_ = above + std::min(column, cursor_ - above);
  while (is_continuation(text_[cursor_])) --cursor_;
}

void LineEditor::go_down() {
  const size_t column = cursor_ - line_begin();
  const size_t end = line_end();
  if (end == text_.size()) {
    if (recalled_ < history_->size()) recall(recalled_ + 1);
    return;
  }
  cursor_ = end + 1;
  cursor_ += std::min(column, line_end() - cursor_);
  while (cursor_ < text_.size() && is_continuation(text_[cursor_])) --cursor_;
}

void LineEditor::recall(size_t index) {
  if (recalled_ == history_->size()) draft_ = text_;
  recalled_ = index;
  set(index == history_->size() ? draft_ : (*history_)[index]);
}

}  // namespace atom::cli
