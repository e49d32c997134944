// Methods of str, by code point as in Python.
#include <algorithm>
#include <optional>

#include "tokenizer/chat_template/access.h"
#include "tokenizer/chat_template/arguments.h"
#include "tokenizer/chat_template/methods.h"
#include "tokenizer/chat_template/split_text.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/to_text.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom::jinja {
namespace {

Value list_of(Heap& heap, const std::vector<std::string_view>& parts) {
  heap.require(parts.size() * sizeof(Value));
  ValueList items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(heap.string(part));
  return heap.list(std::move(items));
}

template <std::string (*map)(std::string_view)>
Value map_text(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("str method", arguments, {});
  context.heap.require(2 * self.text().size());
  context.heap.step_characters(2 * self.text().size());
  return context.heap.string(map(self.text()));
}

template <bool left, bool right>
Value strip_method(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("strip", arguments, {"chars"});
  const std::string* characters = bound.text(0);
  context.heap.step_characters(self.text().size());
  if (characters == nullptr) return context.heap.string(strip_space(self.text(), left, right));
  context.heap.step_characters(characters->size());
  return context.heap.string(strip_characters(self.text(), *characters, left, right));
}

template <bool from_right>
Value split_method(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("split", arguments, {"sep", "maxsplit"});
  const std::string* separator = bound.text(0);
  const int64_t max_splits = bound.integer(1, -1);
  if (separator != nullptr && separator->empty()) fail("split(): the separator is empty");
  context.heap.step_characters(self.text().size());
  return list_of(context.heap,
                 split_text(context.heap, self.text(), separator, max_splits, from_right));
}

Value splitlines(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("splitlines", arguments, {"keepends"});
  return list_of(context.heap, split_lines(context.heap, self.text(), bound.flag(0, false)));
}

// The part of `text` that [start, end) of the arguments leaves, as slicing does.
struct Window {
  std::string_view text;
  size_t first_byte;  // of `text` in the whole
};

std::optional<Window> window_of(Heap& heap,
                                const std::string& text,
                                const BoundArguments& bound,
                                size_t start_parameter) {
  if (!bound.get(start_parameter) && !bound.get(start_parameter + 1)) return Window{text, 0};
  heap.step_characters(2 * text.size());
  const int64_t size = static_cast<int64_t>(count_code_points(text));
  const auto resolve = [size](int64_t position) {
    return position < 0 ? std::max<int64_t>(0, std::max(position, -size) + size) : position;
  };
  const int64_t start = resolve(bound.integer(start_parameter, 0));
  const int64_t end = std::min(size, resolve(bound.integer(start_parameter + 1, size)));
  if (start > size || start > end) return std::nullopt;
  const size_t first = byte_position(text, static_cast<size_t>(start));
  const std::string_view rest = std::string_view(text).substr(first);
  return Window{rest.substr(0, byte_position(rest, static_cast<size_t>(end - start))), first};
}

template <bool at_start>
Value has_affix(Context& context, const Value& self, const Arguments& arguments) {
  const char* name = at_start ? "startswith" : "endswith";
  const BoundArguments bound(name, arguments, {"affix", "start", "end"}, 1);
  const auto window = window_of(context.heap, self.text(), bound, 1);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string())
      fail("{}() needs a str or a tuple of str, not {}", name, type_name(affix));
    if (!window || affix.text().size() > window->text.size()) return false;
    context.heap.step_bytes(affix.text().size());
    return at_start ? window->text.starts_with(affix.text()) : window->text.ends_with(affix.text());
  };
  const Value& affix = *bound.get(0);
  if (affix.is_sequence() && affix.sequence().kind == SequenceKind::kTuple) {
    const ValueList& items = affix.sequence().items;
    return Value::boolean(std::any_of(items.begin(), items.end(), matches));
  }
  return Value::boolean(matches(affix));
}

template <bool from_right, bool must_exist>
Value find_text(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("find", arguments, {"sub", "start", "end"}, 1);
  const std::string* wanted = bound.text(0);
  if (wanted == nullptr) fail("find(): 'sub' must be a str, not None");
  const auto window = window_of(context.heap, self.text(), bound, 1);
  context.heap.step_characters(self.text().size());
  size_t found = std::string::npos;
  if (window)
    found = from_right ? find_last_in(context.heap, window->text, *wanted)
                       : find_in(context.heap, window->text, *wanted);
  if (found == std::string::npos) {
    if (must_exist) fail("index(): the text is not part of the str");
    return Value::integer(-1);
  }
  const std::string_view before =
      std::string_view(self.text()).substr(0, window->first_byte + found);
  return Value::integer(static_cast<int64_t>(count_code_points(before)));
}

Value count_text(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("count", arguments, {"sub", "start", "end"}, 1);
  const std::string* wanted = bound.text(0);
  if (wanted == nullptr) fail("count(): 'sub' must be a str, not None");
  const auto window = window_of(context.heap, self.text(), bound, 1);
  context.heap.step_characters(self.text().size());
  if (!window) return Value::integer(0);
  if (wanted->empty()) {
    return Value::integer(static_cast<int64_t>(count_code_points(window->text)) + 1);
  }
  int64_t count = 0;
  for (size_t at = find_in(context.heap, window->text, *wanted); at != std::string_view::npos;
       at = find_in(context.heap, window->text, *wanted, at + wanted->size())) {
    ++count;
  }
  return Value::integer(count);
}

Value replace(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"}, 2);
  const std::string* from = bound.text(0);
  const std::string* to = bound.text(1);
  if (from == nullptr || to == nullptr) fail("replace() needs two str");
  return context.heap.string(
      replace_text(context.heap, self.text(), *from, *to, bound.integer(2, -1)));
}

Value join(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("join", arguments, {"iterable"}, 1);
  std::string out;
  Charge charge(&context.heap, 0);
  bool first = true;
  for (const Value& item : iterate(context.heap, *bound.get(0))) {
    if (!item.is_string()) fail("join() needs items of type str, not {}", type_name(item));
    charge.grow(item.text().size() + self.text().size());
    context.heap.step_bytes(item.text().size() + self.text().size());
    if (!first) out += self.text();
    out += item.text();
    first = false;
  }
  return context.heap.string(std::move(out));
}

template <bool is_prefix>
Value remove_affix(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(is_prefix ? "removeprefix" : "removesuffix", arguments, {"affix"}, 1);
  const std::string* affix = bound.text(0);
  std::string_view text = self.text();
  if (affix == nullptr) fail("removeprefix() and removesuffix() need a str");
  context.heap.step_bytes(std::min(affix->size(), text.size()));
  if (is_prefix && text.starts_with(*affix)) text.remove_prefix(affix->size());
  if (!is_prefix && text.ends_with(*affix)) text.remove_suffix(affix->size());
  return context.heap.string(text);
}

template <bool from_right>
Value partition(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("partition", arguments, {"sep"}, 1);
  const std::string* separator = bound.text(0);
  if (separator == nullptr || separator->empty()) fail("partition(): the separator is empty");
  Heap& heap = context.heap;
  const std::string_view text = self.text();
  const size_t at =
      from_right ? find_last_in(heap, text, *separator) : find_in(heap, text, *separator);
  if (at == std::string_view::npos) {
    const Value empty = heap.string(std::string());
    return from_right ? heap.tuple({empty, empty, self}) : heap.tuple({self, empty, empty});
  }
  return heap.tuple({heap.string(text.substr(0, at)),
                     heap.string(*separator),
                     heap.string(text.substr(at + separator->size()))});
}

// str.isalpha and its like: every code point satisfies the test, and there is one.
template <bool (*test)(char32_t)>
Value all_code_points(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("str test", arguments, {});
  context.heap.step_characters(self.text().size());
  const std::string& text = self.text();
  for (size_t position = 0; position < text.size();) {
    if (!test(next_code_point(text, &position))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

bool is_alphanumeric(char32_t c) {
  return is_alpha(c) || is_digit(c);
}

// str.isupper and islower: no letter of the other case, and one of this.
template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
Value has_case(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("str test", arguments, {});
  context.heap.step_characters(self.text().size());
  const std::string& text = self.text();
  bool found = false;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, &position);
    if (unwanted(c)) return Value::boolean(false);
    found = found || wanted(c);
  }
  return Value::boolean(found);
}

// ljust (left = 0), rjust (left = all), center.
enum class Alignment { kLeft, kRight, kCenter };

template <Alignment alignment>
Value align(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("ljust, rjust and center", arguments, {"width", "fillchar"}, 1);
  const std::string* fill = bound.text(1);
  if (fill != nullptr && (fill->size() > 4 || count_code_points(*fill) != 1)) {
    fail("the fill must be one character");
  }
  return context.heap.string(pad_text(context.heap,
                                      self.text(),
                                      bound.integer(0, 0),
                                      fill ? *fill : " ",
                                      alignment != Alignment::kLeft,
                                      alignment != Alignment::kRight));
}

constexpr MethodEntry kStringMethods[] = {
    {"split", split_method<false>},
    {"strip", strip_method<true, true>},
    {"startswith", has_affix<true>},
    {"endswith", has_affix<false>},
    {"replace", replace},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"upper", map_text<to_upper>},
    {"lower", map_text<to_lower>},
    {"title", map_text<to_title>},
    {"capitalize", map_text<capitalize>},
    {"join", join},
    {"find", find_text<false, false>},
    {"rfind", find_text<true, false>},
    {"index", find_text<false, true>},
    {"rindex", find_text<true, true>},
    {"count", count_text},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"isalpha", all_code_points<is_alpha>},
    {"isdigit", all_code_points<is_digit>},
    {"isalnum", all_code_points<is_alphanumeric>},
    {"isspace", all_code_points<is_space>},
    {"isupper", has_case<is_upper, is_lower>},
    {"islower", has_case<is_lower, is_upper>},
    {"ljust", align<Alignment::kLeft>},
    {"rjust", align<Alignment::kRight>},
    {"center", align<Alignment::kCenter>},
};

}  // namespace

NativeFunction find_string_method(std::string_view name) {
  for (const MethodEntry& entry : kStringMethods) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace atom::jinja
