#include "tokenizer/chat_template/printf_format.h"

#include <cmath>
#include <cstdio>

#include "tokenizer/chat_template/operators.h"
#include "tokenizer/chat_template/split_text.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/to_text.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom::jinja {
namespace {

constexpr int kMaxWidth = 1000;  // of one converted value; longer ones are a mistake or an attack

struct Conversion {
  bool left = false, sign = false, space = false, zero = false, alternate = false;
  int width = 0;
  int precision = -1;
  char type = 's';
};

class Formatter {
 public:
  Formatter(Heap& heap, const std::string& format, const Value& values)
      : heap_(heap), format_(format), values_(values), charge_(&heap, format.size()) {}

  Value run() {
    heap_.step_bytes(format_.size());
    while (position_ < format_.size()) {
      const size_t percent = format_.find('%', position_);
      out_.append(format_, position_, percent - position_);
      if (percent == std::string::npos) break;
      position_ = percent + 1;
      write_conversion();
    }
    const bool all_used = values_.is_dict() || next_value_ == num_values();
    if (!all_used) fail("'{}' % values: more values than conversions", format_);
    return heap_.string(std::move(out_));
  }

 private:
  bool is_tuple() const {
    return values_.is_sequence() && values_.sequence().kind == SequenceKind::kTuple;
  }
  size_t num_values() const { return is_tuple() ? values_.sequence().items.size() : 1; }

  char peek() const {
    if (position_ >= format_.size()) fail("'{}' % values: the last conversion is cut off", format_);
    return format_[position_];
  }

  Value next_value() {
    if (next_value_ >= num_values()) fail("'{}' % values: too few values", format_);
    const size_t index = next_value_++;
    return is_tuple() ? values_.sequence().items[index] : values_;
  }

  Value named_value() {
    const size_t close = format_.find(')', position_);
    if (close == std::string::npos || !values_.is_dict()) {
      fail("'{}' % values: %(name) needs a dict", format_);
    }
    const Value name = heap_.string(format_.substr(position_ + 1, close - position_ - 1));
    position_ = close + 1;
    const Value* value = find_key(heap_, values_.dict(), name);
    if (value == nullptr) fail("'{}' % values: there is no '{}'", format_, name.text());
    return *value;
  }

  int read_number() {
    int number = 0;
    while (peek() >= '0' && peek() <= '9') {
      number = number * 10 + (format_[position_++] - '0');
      if (number > kMaxWidth) fail("a width or precision is over {}", kMaxWidth);
    }
    return number;
  }

  void write_conversion() {
    Conversion conversion;
    const bool is_named = peek() == '(';
    Value value = is_named ? named_value() : Value();
    for (bool more = true; more;) {
      switch (peek()) {
        case '-':
          conversion.left = true;
          break;
        case '+':
          conversion.sign = true;
          break;
        case ' ':
          conversion.space = true;
          break;
        case '0':
          conversion.zero = true;
          break;
        case '#':
          conversion.alternate = true;
          break;
        default:
          more = false;
          continue;
      }
      ++position_;
    }
    conversion.width = read_number();
    if (peek() == '.') {
      ++position_;
      conversion.precision = read_number();
    }
    conversion.type = peek();
    ++position_;
    if (conversion.type == '%') {
      out_ += '%';
      return;
    }
    if (!is_named) value = next_value();
    write(conversion, value);
  }

  void write(const Conversion& conversion, const Value& value) {
    switch (conversion.type) {
      case 's':
        return write_text(conversion, to_text(heap_, value));
      case 'r':
        return write_text(conversion, to_repr(heap_, value));
      case 'c':
        if (!value.is_string() || value.text().size() > 4 || count_code_points(value.text()) != 1) {
          fail("'%c' needs one character");
        }
        return write_text(conversion, value.text());
      case 'd':
      case 'i':
      case 'u':
        return write_integer(conversion, value, 'd');
      case 'x':
      case 'X':
      case 'o':
        return write_integer(conversion, value, conversion.type);
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        return write_real(conversion, value);
      default:
        fail("'%{}' is not a conversion", conversion.type);
    }
  }

  void write_text(const Conversion& conversion, std::string text) {
    if (conversion.precision >= 0) {
      text.resize(byte_position(text, static_cast<size_t>(conversion.precision)));
    }
    append(pad_text(heap_, text, conversion.width, " ", !conversion.left, conversion.left));
  }

  static std::string flags_of(const Conversion& conversion) {
    std::string flags = "%";
    if (conversion.left) flags += '-';
    if (conversion.sign) flags += '+';
    if (conversion.space) flags += ' ';
    if (conversion.zero) flags += '0';
    if (conversion.alternate) flags += '#';
    flags += std::to_string(conversion.width);
    if (conversion.precision >= 0) flags += '.' + std::to_string(conversion.precision);
    return flags;
  }

  void write_integer(const Conversion& conversion, const Value& value, char type) {
    if (!value.is_number()) fail("'%{}' needs a number, not {}", type, type_name(value));
    if (value.is_real() && !(std::abs(value.number()) < 9.2e18)) {
      fail("{} does not fit a 64-bit integer", float_repr(value.number()));
    }
    if (value.is_real() && type != 'd') fail("'%{}' needs an int, not float", type);
    long long number = value.is_real() ? static_cast<long long>(value.number()) : value.integral();
    if (type != 'd' && number < 0) fail("'%{}' of a negative number is not supported", type);
    char buffer[2 * kMaxWidth + 64];
    const int size =
        std::snprintf(buffer, sizeof(buffer), (flags_of(conversion) + "ll" + type).c_str(), number);
    append(std::string(buffer, static_cast<size_t>(size)));
  }

  void write_real(const Conversion& conversion, const Value& value) {
    if (!value.is_number()) fail("'%{}' needs a number, not {}", conversion.type, type_name(value));
    char buffer[2 * kMaxWidth + 512];  // %f of the largest double has 309 digits before the point
    const int size = std::snprintf(
        buffer, sizeof(buffer), (flags_of(conversion) + conversion.type).c_str(), value.number());
    append(std::string(buffer, static_cast<size_t>(size)));
  }

  void append(const std::string& text) {
    charge_.grow(text.size());
    heap_.step_bytes(text.size());
    out_ += text;
  }

  Heap& heap_;
  const std::string& format_;
  const Value& values_;
  Charge charge_;
  std::string out_;
  size_t position_ = 0;
  size_t next_value_ = 0;
};

}  // namespace

Value printf_format(Heap& heap, const std::string& format, const Value& values) {
  return Formatter(heap, format, values).run();
}

}  // namespace atom::jinja
