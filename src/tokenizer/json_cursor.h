// Reads a large JSON document front to back without building a tree: the vocabulary and the merges
// of a tokenizer.json are the bulk of it and go straight into their tables. Bounded: no recursion,
// strings are the only memory. After the first error every call fails and status() says why.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace atom {

class JsonCursor {
 public:
  // `text` must be valid UTF-8 and outlive the cursor. `where` begins each message.
  JsonCursor(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  const Status& status() const { return status_; }
  // Records an error at the present position; returns false.
  bool fail(std::string_view message);

  // The next character that is not white space, 0 at the end.
  char peek();
  bool expect(char c);

  // Walks the members of an object: begin_object(), then next_key() until it returns false, reading
  // or skipping one value after each. `key` is valid until the next string is read.
  bool begin_object() { return begin('{'); }
  bool next_key(std::string_view* key);
  // The same for an array.
  bool begin_array() { return begin('['); }
  bool next_element();

  // `value` points into the text or the cursor's buffer: valid until the next string is read.
  bool read_string(std::string_view* value);
  bool read_integer(int64_t* value);
  bool read_null();
  // Skips one value, of which only the nesting and the strings are checked; `raw` is its text.
  bool skip_value(std::string_view* raw);
  bool expect_end();

 private:
  bool begin(char open);
  bool next(char close);
  void skip_space();
  bool read_escape();
  bool read_hex4(uint32_t* value);

  std::string_view text_;
  std::string where_;
  size_t position_ = 0;
  bool first_ = false;  // an object or array was just opened
  std::string buffer_;
  Status status_;
};

}  // namespace atom
