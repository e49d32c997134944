#include "server/parsers/json_scanner.h"

#include <array>

namespace atom::server {
namespace {

// Bytes that stand for themselves inside a string.
constexpr std::array<bool, 256> make_plain_bytes() {
  std::array<bool, 256> plain{};
  for (size_t c = 0x20; c < 256; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}
constexpr std::array<bool, 256> kPlainBytes = make_plain_bytes();

size_t plain_run(std::string_view text, size_t from) {
  while (from < text.size() && kPlainBytes[static_cast<uint8_t>(text[from])]) ++from;
  return from;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// `code` is below 0x110000 and no surrogate.
void append_utf8(uint32_t code, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | ((code >> shift) & 0x3F)));
  };
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code >> 6)));
    tail(0);
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (code >> 12)));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | (code >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

constexpr uint32_t kReplacement = 0xFFFD;
bool is_high_surrogate(uint32_t code) {
  return code >= 0xD800 && code < 0xDC00;
}
bool is_low_surrogate(uint32_t code) {
  return code >= 0xDC00 && code < 0xE000;
}

}  // namespace

bool JsonScanner::go(State state) {
  state_ = state;
  return true;
}

bool JsonScanner::bad() {
  status_ = JsonStatus::kBad;
  return false;
}

void JsonScanner::value_done() {
  state_ = State::kAfterValue;
  if (open_.empty()) status_ = JsonStatus::kDone;
}

bool JsonScanner::open(char bracket, State state) {
  if (open_.size() >= kMaxDepth) return bad();
  open_.push_back(bracket);
  return go(state);
}

bool JsonScanner::close(char bracket) {
  if (open_.empty() || open_.back() != bracket) return bad();
  open_.pop_back();
  value_done();
  return true;
}

bool JsonScanner::take_value(char c) {
  switch (c) {
    case '{':
      return open('{', State::kFirstKey);
    case '[':
      return open('[', State::kFirstElement);
    case '"':
      string_is_key_ = false;
      return go(State::kString);
    case 't':
      literal_ = "rue";
      return go(State::kLiteral);
    case 'f':
      literal_ = "alse";
      return go(State::kLiteral);
    case 'n':
      literal_ = "ull";
      return go(State::kLiteral);
    case '-':
      return go(State::kMinus);
    case '0':
      return go(State::kZero);
    default:
      return is_digit(c) ? go(State::kInteger) : bad();
  }
}

bool JsonScanner::take_after_value(char c) {
  if (c == ',') return go(open_.back() == '{' ? State::kKey : State::kValue);
  if (c == '}') return close('{');
  if (c == ']') return close('[');
  return bad();
}

bool JsonScanner::number_may_end() const {
  return state_ == State::kZero || state_ == State::kInteger || state_ == State::kFraction ||
         state_ == State::kExponentDigits;
}

bool JsonScanner::take_number(char c) {
  const bool digit = is_digit(c);
  switch (state_) {
    case State::kMinus:
      if (digit) return go(c == '0' ? State::kZero : State::kInteger);
      return bad();
    case State::kZero:
    case State::kInteger:
      if (digit && state_ == State::kInteger) return true;
      if (c == '.') return go(State::kPoint);
      if (c == 'e' || c == 'E') return go(State::kExponent);
      break;
    case State::kPoint:
      return digit ? go(State::kFraction) : bad();
    case State::kFraction:
      if (digit) return true;
      if (c == 'e' || c == 'E') return go(State::kExponent);
      break;
    case State::kExponent:
      if (c == '+' || c == '-') return go(State::kExponentSign);
      return digit ? go(State::kExponentDigits) : bad();
    case State::kExponentSign:
      return digit ? go(State::kExponentDigits) : bad();
    default:
      if (digit) return true;
      break;
  }
  value_done();  // the byte belongs to what follows the number
  return false;
}

bool JsonScanner::take(char c) {
  switch (state_) {
    case State::kValue:
    case State::kFirstElement:
    case State::kFirstKey:
    case State::kKey:
    case State::kColon:
    case State::kAfterValue:
      if (is_json_space(c)) return true;
      if (state_ == State::kColon) return c == ':' ? go(State::kValue) : bad();
      if (state_ == State::kAfterValue) return take_after_value(c);
      if (state_ == State::kFirstElement && c == ']') return close('[');
      if (state_ == State::kFirstKey && c == '}') return close('{');
      if (state_ == State::kFirstKey || state_ == State::kKey) {
        string_is_key_ = true;
        return c == '"' ? go(State::kString) : bad();
      }
      return take_value(c);
    case State::kLiteral:
      if (c != literal_.front()) return bad();
      literal_.remove_prefix(1);
      if (literal_.empty()) value_done();
      return true;
    default:
      return take_number(c);
  }
}

size_t JsonScanner::take_string(std::string_view text) {
  size_t used = 0;
  while (used < text.size()) {
    const char c = text[used];
    if (state_ == State::kString) {
      used = plain_run(text, used);
      if (used == text.size()) break;
      if (text[used] == '"') {
        ++used;
        if (string_is_key_) {
          state_ = State::kColon;
        } else {
          value_done();
        }
        return used;
      }
      if (text[used] != '\\') break;
      state_ = State::kEscape;
    } else if (state_ == State::kEscape) {
      if (std::string_view("\"\\/bfnrtu").find(c) == std::string_view::npos) break;
      num_hex_ = 0;
      state_ = c == 'u' ? State::kHex : State::kString;
    } else {
      if (hex_digit(c) < 0) break;
      if (++num_hex_ == 4) state_ = State::kString;
    }
    ++used;
  }
  if (used < text.size()) bad();
  return used;
}

size_t JsonScanner::scan(std::string_view text) {
  size_t used = 0;
  while (used < text.size() && status_ == JsonStatus::kOpen) {
    if (state_ == State::kString || state_ == State::kEscape || state_ == State::kHex) {
      used += take_string(text.substr(used));
    } else if (take(text[used])) {
      ++used;
    }
  }
  return used;
}

void JsonScanner::end() {
  if (status_ != JsonStatus::kOpen) return;
  status_ = open_.empty() && number_may_end() ? JsonStatus::kDone : JsonStatus::kBad;
}

void JsonStringDecoder::flush_surrogate(std::string* out) {
  if (high_surrogate_ != 0) append_utf8(kReplacement, out);
  high_surrogate_ = 0;
}

bool JsonStringDecoder::take_escape(char c, std::string* out) {
  if (c == 'u') {
    num_hex_ = 0;
    code_ = 0;
    state_ = State::kHex;
    return true;
  }
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
  const size_t index = kLetters.find(c);
  if (index == std::string_view::npos) return false;
  flush_surrogate(out);
  out->push_back(kMeaning[index]);
  state_ = State::kText;
  return true;
}

bool JsonStringDecoder::take_hex(char c, std::string* out) {
  const int digit = hex_digit(c);
  if (digit < 0) return false;
  code_ = code_ * 16 + static_cast<uint32_t>(digit);
  if (++num_hex_ < 4) return true;
  state_ = State::kText;
  if (high_surrogate_ != 0 && is_low_surrogate(code_)) {
    append_utf8(0x10000 + ((high_surrogate_ - 0xD800) << 10) + (code_ - 0xDC00), out);
    high_surrogate_ = 0;
    return true;
  }
  flush_surrogate(out);
  if (is_high_surrogate(code_)) {
    high_surrogate_ = code_;
  } else {
    append_utf8(is_low_surrogate(code_) ? kReplacement : code_, out);
  }
  return true;
}

size_t JsonStringDecoder::decode(std::string_view text, std::string* out) {
  size_t used = 0;
  while (used < text.size() && status_ == JsonStatus::kOpen) {
    if (state_ == State::kText) {
      const size_t end = plain_run(text, used);
      if (end > used) flush_surrogate(out);
      out->append(text.substr(used, end - used));
      used = end;
      if (used == text.size()) break;
      if (text[used] == '"') {
        flush_surrogate(out);
        status_ = JsonStatus::kDone;
      } else if (text[used] == '\\') {
        state_ = State::kEscape;
      } else {
        status_ = JsonStatus::kBad;
        break;
      }
    } else if (!(state_ == State::kEscape ? take_escape(text[used], out)
                                          : take_hex(text[used], out))) {
      status_ = JsonStatus::kBad;
      break;
    }
    ++used;
  }
  return used;
}

void append_json_escaped(std::string_view text, std::string* out) {
  for (size_t from = 0; from < text.size();) {
    const size_t end = plain_run(text, from);
    out->append(text.substr(from, end - from));
    if (end == text.size()) return;
    const char c = text[end];
    constexpr std::string_view kBytes = "\"\\\b\f\n\r\t";
    constexpr std::string_view kLetters = "\"\\bfnrt";
    if (const size_t index = kBytes.find(c); index != std::string_view::npos) {
      out->push_back('\\');
      out->push_back(kLetters[index]);
    } else {
      constexpr std::string_view kHex = "0123456789abcdef";
      out->append("\\u00");
      out->push_back(kHex[static_cast<uint8_t>(c) >> 4]);
      out->push_back(kHex[static_cast<uint8_t>(c) & 15]);
    }
    from = end + 1;
  }
}

}  // namespace atom::server
