// JSON that arrives in parts: where a value ends and whether it is right so far (JsonScanner), and
// the text of a string (JsonStringDecoder). Strict RFC 8259, except that bytes of strings are not
// checked to be UTF-8. Memory is bounded by the depth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace atom::server {

enum class JsonStatus : uint8_t { kOpen, kDone, kBad };

inline bool is_json_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

inline std::string_view trim_json_space(std::string_view text) {
  while (!text.empty() && is_json_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_json_space(text.back())) text.remove_suffix(1);
  return text;
}

// One value of any type.
class JsonScanner {
 public:
  static constexpr size_t kMaxDepth = 512;  // nested deeper is bad

  // Takes bytes up to the end of the value or to the first that cannot be; that one is not taken.
  // The end of a bare number is only seen at the byte behind it.
  size_t scan(std::string_view text);
  // No more text: done if the value is complete, otherwise bad.
  void end();

  JsonStatus status() const { return status_; }

 private:
  enum class State : uint8_t {
    kValue,
    kFirstElement,
    kFirstKey,
    kKey,
    kColon,
    kAfterValue,
    kString,
    kEscape,
    kHex,
    kLiteral,
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
  };

  bool take(char c);  // false: not taken
  bool take_value(char c);
  bool take_after_value(char c);
  bool take_number(char c);
  size_t take_string(std::string_view text);
  bool open(char bracket, State state);
  bool close(char bracket);
  bool go(State state);
  bool bad();
  void value_done();
  bool number_may_end() const;

  State state_ = State::kValue;
  JsonStatus status_ = JsonStatus::kOpen;
  bool string_is_key_ = false;
  uint8_t num_hex_ = 0;
  std::string_view literal_;  // what is still to come of true, false or null
  std::string open_;          // the brackets that are open
};

// The text of one string, from behind its opening quote.
class JsonStringDecoder {
 public:
  // Takes bytes up to and with the closing quote, or up to the first that cannot be. Halves of
  // surrogate pairs become U+FFFD.
  size_t decode(std::string_view text, std::string* out);

  JsonStatus status() const { return status_; }

 private:
  enum class State : uint8_t { kText, kEscape, kHex };

  bool take_escape(char c, std::string* out);
  bool take_hex(char c, std::string* out);
  void flush_surrogate(std::string* out);

  State state_ = State::kText;
  JsonStatus status_ = JsonStatus::kOpen;
  uint8_t num_hex_ = 0;
  uint32_t code_ = 0;
  uint32_t high_surrogate_ = 0;  // 0: none waits for its other half
};

// Appends `text` as the inside of a JSON string.
void append_json_escaped(std::string_view text, std::string* out);

}  // namespace atom::server
