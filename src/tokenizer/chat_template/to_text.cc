#include "tokenizer/chat_template/to_text.h"

#include <charconv>
#include <cmath>

#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom::jinja {
namespace {

void append_string_repr(std::string* out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out->push_back(quote);
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    const char32_t c = next_code_point(text, &position);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c == '\r') {
      out->append("\\r");
    } else if (c == '\t') {
      out->append("\\t");
    } else if (is_printable(c)) {
      out->append(text.substr(start, position - start));
    } else if (c < 0x100) {
      out->append(fmt::format("\\x{:02x}", static_cast<uint32_t>(c)));
    } else if (c < 0x10000) {
      out->append(fmt::format("\\u{:04x}", static_cast<uint32_t>(c)));
    } else {
      out->append(fmt::format("\\U{:08x}", static_cast<uint32_t>(c)));
    }
  }
  out->push_back(quote);
}

// Writes one value after the other into a text whose size counts against the heap while it grows.
class ReprWriter {
 public:
  explicit ReprWriter(Heap& heap) : heap_(heap), charge_(&heap, 0) {}

  std::string take() { return std::move(out_); }

  void write(const Value& value, int depth = 0) {
    heap_.step();
    if (depth > kMaxValueDepth) fail_limit("a value refers to itself: it cannot be printed");
    if (value.is_string()) {
      heap_.step_characters(4 * value.text().size());
      append_string_repr(&out_, value.text());
    } else if (value.is_sequence()) {
      write_sequence(value.sequence(), depth);
    } else if (value.is_dict()) {
      write_dict(value.dict(), depth);
    } else if (value.is_namespace()) {
      write_namespace(value.name_space(), depth);
    } else if (value.is_undefined()) {
      out_ += "Undefined";
    } else {
      out_ += to_text(heap_, value);
    }
    if (out_.size() > charge_.bytes()) charge_.grow(out_.size() - charge_.bytes());
  }

 private:
  void write_sequence(const Sequence& sequence, int depth) {
    switch (sequence.kind) {
      case SequenceKind::kList:
        return write_items(sequence, "[", "]", depth);
      case SequenceKind::kTuple:
        return write_items(sequence, "(", sequence.items.size() == 1 ? ",)" : ")", depth);
      case SequenceKind::kRange:
        return write_range(sequence);
      case SequenceKind::kDictKeys:
        return write_items(sequence, "dict_keys([", "])", depth);
      case SequenceKind::kDictValues:
        return write_items(sequence, "dict_values([", "])", depth);
      case SequenceKind::kDictItems:
        return write_items(sequence, "dict_items([", "])", depth);
      case SequenceKind::kGenerator:
        out_ += "<generator object>";
        return;
    }
  }

  void write_items(const Sequence& sequence, const char* open, const char* close, int depth) {
    out_ += open;
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      write(sequence.items[i], depth + 1);
    }
    out_ += close;
  }

  void write_range(const Sequence& range) {
    const size_t size = range.items.size();
    const int64_t start = size > 0 ? range.items.front().integral() : 0;
    const int64_t step = size > 1 ? range.items[1].integral() - start : 1;
    const int64_t stop = size > 0 ? range.items.back().integral() + step : 0;
    out_ += step == 1 ? fmt::format("range({}, {})", start, stop)
                      : fmt::format("range({}, {}, {})", start, stop, step);
  }

  void write_dict(const Dict& dict, int depth) {
    out_ += '{';
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out_ += ", ";
      write(dict.entries[i].key, depth + 1);
      out_ += ": ";
      write(dict.entries[i].value, depth + 1);
    }
    out_ += '}';
  }

  void write_namespace(const Namespace& name_space, int depth) {
    out_ += "<Namespace {";
    bool first = true;
    for (const auto& [name, value] : name_space.attributes) {
      if (!first) out_ += ", ";
      first = false;
      append_string_repr(&out_, name);
      out_ += ": ";
      write(value, depth + 1);
    }
    out_ += "}>";
  }

  Heap& heap_;
  Charge charge_;
  std::string out_;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest digits that read back as `value`, as d.ddde+xx.
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const char* exponent_begin = text.data() + e + 1 + (text[e + 1] == '+' ? 1 : 0);
  std::from_chars(exponent_begin, text.data() + text.size(), exponent);
  std::string sign;
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c == '-') sign.push_back(c);
    if (c >= '0' && c <= '9') digits += c;
  }
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}{}{}{}e{}{:02d}",
                       sign,
                       digits[0],
                       digits.size() > 1 ? "." : "",
                       digits.substr(1),
                       exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0) {
    return fmt::format(
        "{}0.{}{}", sign, std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  }
  const size_t point = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= point) {
    return fmt::format("{}{}{}.0", sign, digits, std::string(point - digits.size(), '0'));
  }
  return fmt::format("{}{}.{}", sign, digits.substr(0, point), digits.substr(point));
}

std::string to_text(Heap& heap, const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_none()) return "None";
  if (value.is_boolean()) return value.boolean() ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.integral());
  if (value.is_real()) return float_repr(value.number());
  if (value.is_string()) {
    heap.step_bytes(value.text().size());
    return value.text();
  }
  if (value.is_function()) {
    const Function& function = value.function();
    return function.macro ? fmt::format("<Macro '{}'>", function.name)
                          : fmt::format("<built-in method {}>", function.name);
  }
  if (value.is_loop()) {
    return fmt::format("<LoopContext {}/{}>", value.loop().index + 1, value.loop().items.size());
  }
  return to_repr(heap, value);
}

std::string to_repr(Heap& heap, const Value& value) {
  ReprWriter writer(heap);
  writer.write(value);
  return writer.take();
}

}  // namespace atom::jinja
