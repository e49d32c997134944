// The bytes of a terminal as keys: escape sequences of xterm and its like, UTF-8, pasted text
// (bracketed paste). A plain value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace atom::cli {

enum class Key {
  kText,     // KeyPress::text, one character
  kPaste,    // KeyPress::text, of any length, with \n as line ends
  kControl,  // KeyPress::text, the letter: "c" of Ctrl-C
  kAlt,      // KeyPress::text, the character
  kEnter,
  kNewline,  // Alt-Enter or Ctrl-J
  kBackspace,
  kDelete,
  kLeft,
  kRight,
  kUp,
  kDown,
  kHome,
  kEnd,
  kWordLeft,
  kWordRight,
};

struct KeyPress {
  Key key;
  std::string text = {};
};

class KeyDecoder {
 public:
  void feed(std::string_view bytes) { buffer_ += bytes; }

  // The next key; nothing when the bytes so far are none or the beginning of one. Sequences that
  // mean nothing here are skipped.
  std::optional<KeyPress> next();

  // What is there may be a whole key: the Escape key sends what the sequences of others begin with.
  bool is_waiting() const { return !buffer_.empty() && !in_paste_; }
  // It is: nothing follows.
  void give_up() { buffer_.clear(); }

 private:
  enum class Step { kKey, kSkipped, kIncomplete };

  Step decode(KeyPress* press);
  Step decode_escape(KeyPress* press);
  Step decode_sequence(KeyPress* press);
  Step decode_paste(KeyPress* press);
  Step decode_text(KeyPress* press);
  void drop(size_t size) { buffer_.erase(0, size); }

  std::string buffer_;
  bool in_paste_ = false;
};

}  // namespace atom::cli
