// The filters that are neither about text nor about sequences, and the table of all.
#include "tokenizer/chat_template/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "tokenizer/chat_template/access.h"
#include "tokenizer/chat_template/json_value.h"
#include "tokenizer/chat_template/operators.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/to_text.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom::jinja {
namespace {

constexpr int64_t kMaxJsonIndent = 64;

Value to_json(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(
      "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonDumpOptions options;
  options.ensure_ascii = bound.flag(0, false);
  options.sort_keys = bound.flag(3, false);
  const Value indent = bound.get_or(1, Value::none());
  if (indent.is_integral()) {
    const int64_t width = std::max<int64_t>(0, indent.integral());
    if (width > kMaxJsonIndent) fail("tojson(): the largest indent is {}", kMaxJsonIndent);
    options.is_indented = true;
    options.indent.assign(static_cast<size_t>(width), ' ');
  } else if (indent.is_string()) {
    options.is_indented = true;
    options.indent = indent.text();
  } else if (!indent.is_none()) {
    fail("tojson(): 'indent' must be an int, a str or none, not {}", type_name(indent));
  }
  if (options.is_indented) options.item_separator.resize(1);  // no space before a line end
  if (const Value* separators = bound.get(2); separators != nullptr && !separators->is_none()) {
    const auto parts = iterate(context.heap, *separators);
    if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string()) {
      fail("tojson(): 'separators' must be two str, between items and behind keys");
    }
    options.item_separator = parts[0].text();
    options.key_separator = parts[1].text();
  }
  return context.heap.string(dump_json(context.heap, self, options));
}

Value default_value(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("default", arguments, {"default_value", "boolean"});
  const bool use_default = self.is_undefined() || (bound.flag(1, false) && !self.truthy());
  return use_default ? bound.get_or(0, context.heap.string(std::string())) : self;
}

Value identity(Context&, const Value& self, const Arguments& arguments) {
  BoundArguments("safe", arguments, {});
  return self;
}

// The whole of `text` as Python's int(text, base) reads it.
std::optional<int64_t> parse_integer(std::string_view text, int base) {
  std::string digits;
  text = strip_space(text);
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefix = text.substr(0, 2);
  if ((base == 16 && (prefix == "0x" || prefix == "0X")) ||
      (base == 8 && (prefix == "0o" || prefix == "0O")) ||
      (base == 2 && (prefix == "0b" || prefix == "0B"))) {
    text.remove_prefix(2);
  }
  if (text.empty() || text.front() == '_' || text.back() == '_') return std::nullopt;
  if (is_negative) digits.push_back('-');
  for (const char c : text) {
    if (c == '-') return std::nullopt;
    if (c != '_') digits += c;
  }
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, value, base);
  if (parsed.ptr != end || parsed.ec == std::errc::invalid_argument) return std::nullopt;
  if (parsed.ec != std::errc()) fail("int: {} does not fit a 64-bit integer", digits);
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  text = strip_space(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) {
    value = std::strtod(std::string(text).c_str(), nullptr);
  }
  return value;
}

std::optional<int64_t> truncate(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) >= 9223372036854775808.0) {
    fail("int: {} does not fit a 64-bit integer", float_repr(value));
  }
  return static_cast<int64_t>(value);
}

Value to_integer(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("int", arguments, {"default", "base"});
  if (self.is_undefined()) fail("{}", self.undefined_reason());
  const int64_t base = bound.integer(1, 10);
  if (base < 2 || base > 36) fail("int(): 'base' must be between 2 and 36, not {}", base);
  std::optional<int64_t> value;
  if (self.is_integral()) {
    value = self.integral();
  } else if (self.is_real()) {
    value = truncate(self.number());
  } else if (self.is_string()) {
    context.heap.step_characters(4 * self.text().size());
    value = parse_integer(self.text(), static_cast<int>(base));
    if (!value) {
      if (const auto real = parse_real(self.text())) value = truncate(*real);
    }
  }
  return value ? Value::integer(*value) : bound.get_or(0, Value::integer(0));
}

Value to_float(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("float", arguments, {"default"});
  if (self.is_undefined()) fail("{}", self.undefined_reason());
  std::optional<double> value;
  if (self.is_number()) value = self.number();
  if (self.is_string()) {
    context.heap.step_characters(4 * self.text().size());
    value = parse_real(self.text());
  }
  return value ? Value::real(*value) : bound.get_or(0, Value::real(0.0));
}

Value absolute(Context&, const Value& self, const Arguments& arguments) {
  BoundArguments("abs", arguments, {});
  if (!self.is_number()) fail("abs needs a number, not {}", type_name(self));
  if (self.is_real()) return Value::real(std::fabs(self.number()));
  return self.integral() < 0 ? negate(self) : plus(self);
}

Value round_number(Context&, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("round", arguments, {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const std::string* method = bound.text(1);
  if (!self.is_number()) fail("round needs a number, not {}", type_name(self));
  if (std::abs(precision) > 300) fail("round(): 'precision' must be within -300 and 300");
  const double value = self.number();
  if (method == nullptr || *method == "common") {
    if (self.is_integral() && precision >= 0) return plus(self);
    if (precision >= 0) {  // correctly rounded, half to even, as Python does
      char buffer[1024];
      const int size =
          std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), value);
      return Value::real(parse_real({buffer, static_cast<size_t>(size)}).value_or(value));
    }
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    const double rounded = std::nearbyint(value / scale) * scale;
    return self.is_integral() ? Value::integer(truncate(rounded).value_or(0))
                              : Value::real(rounded);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (*method == "ceil") return Value::real(std::ceil(value * scale) / scale);
  if (*method == "floor") return Value::real(std::floor(value * scale) / scale);
  fail("round(): 'method' must be 'common', 'ceil' or 'floor', not '{}'", *method);
}

Value attribute(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("attr", arguments, {"name"}, 1);
  const std::string* name = bound.text(0);
  if (name == nullptr) fail("attr(): 'name' must be a str");
  if (self.is_dict()) {
    // Only what Python calls an attribute: not a key.
    const Value empty = context.heap.dict({});
    const Value method = get_attribute(context.heap, empty, *name);
    return method.is_undefined() ? method : get_attribute(context.heap, self, *name);
  }
  return get_attribute(context.heap, self, *name);
}

constexpr FilterEntry kFilters[] = {
    {"tojson", to_json},
    {"default", default_value},
    {"d", default_value},
    {"safe", identity},
    {"int", to_integer},
    {"float", to_float},
    {"abs", absolute},
    {"round", round_number},
    {"attr", attribute},
};

}  // namespace

NativeFunction find_filter(std::string_view name) {
  for (const std::span<const FilterEntry> table :
       {std::span<const FilterEntry>(kFilters), text_filters(), sequence_filters()}) {
    for (const FilterEntry& entry : table) {
      if (entry.name == name) return entry.function;
    }
  }
  return nullptr;
}

}  // namespace atom::jinja
