// Filters whose result is text. Their input is made text first, as Jinja's soft_str does.
#include <algorithm>

#include "tokenizer/chat_template/access.h"
#include "tokenizer/chat_template/filters.h"
#include "tokenizer/chat_template/printf_format.h"
#include "tokenizer/chat_template/split_text.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/to_text.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom::jinja {
namespace {

template <std::string (*map)(std::string_view)>
Value map_text(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("text filter", arguments, {});
  const std::string text = to_text(context.heap, self);
  context.heap.require(2 * text.size());
  context.heap.step_characters(2 * text.size());
  return context.heap.string(map(text));
}

// The title filter: unlike str.title it looks at separators only, so that "it's" stays one word.
std::string title_words(std::string_view text) {
  std::string out;
  bool at_start = true;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const char32_t c = next_code_point(text, &position);
    const std::string_view character = text.substr(begin, position - begin);
    const bool is_separator =
        is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    out += at_start && !is_separator ? to_upper(character) : to_lower(character);
    at_start = is_separator;
  }
  return out;
}

Value to_string(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("string", arguments, {});
  return self.is_string() ? self : context.heap.string(to_text(context.heap, self));
}

Value trim(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("trim", arguments, {"chars"});
  const std::string text = to_text(context.heap, self);
  const std::string* characters = bound.text(0);
  context.heap.step_characters(text.size());
  if (characters == nullptr) return context.heap.string(strip_space(text));
  context.heap.step_characters(characters->size());
  return context.heap.string(strip_characters(text, *characters, true, true));
}

Value replace(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"}, 2);
  return context.heap.string(replace_text(context.heap,
                                          to_text(context.heap, self),
                                          to_text(context.heap, *bound.get(0)),
                                          to_text(context.heap, *bound.get(1)),
                                          bound.integer(2, -1)));
}

Value join(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("join", arguments, {"d", "attribute"});
  const std::string separator = to_text(context.heap, bound.get_or(0, Value()));
  std::string out;
  Charge charge(&context.heap, 0);
  bool first = true;
  for (const Value& item : iterate(context.heap, self)) {
    const bool has_attribute = bound.get(1) != nullptr && !bound.get(1)->is_none();
    const std::string text =
        to_text(context.heap, has_attribute ? get_path(context.heap, item, *bound.get(1)) : item);
    charge.grow(text.size() + separator.size());
    context.heap.step_bytes(text.size() + separator.size());
    if (!first) out += separator;
    out += text;
    first = false;
  }
  return context.heap.string(std::move(out));
}

Value indent(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("indent", arguments, {"width", "first", "blank"});
  std::string indention(4, ' ');
  if (const Value* width = bound.get(0); width != nullptr && width->is_string()) {
    context.heap.step_bytes(width->text().size());
    indention = width->text();
  } else if (width != nullptr) {
    const int64_t size = std::clamp<int64_t>(bound.integer(0, 4), 0, int64_t{1} << 20);
    context.heap.require(static_cast<size_t>(size));
    indention.assign(static_cast<size_t>(size), ' ');
  }
  const bool blank = bound.flag(2, false);
  const std::string text = to_text(context.heap, self) + "\n";
  std::string out;
  Charge charge(&context.heap, text.size());
  if (bound.flag(1, false)) {
    charge.grow(indention.size());
    out += indention;
  }
  bool is_first = true;
  for (const std::string_view line : split_lines(context.heap, text, false)) {
    charge.grow(indention.size() + 1);
    context.heap.step_bytes(indention.size() + line.size());
    if (!is_first) {
      out += '\n';
      if (blank || !line.empty()) out += indention;
    }
    out += line;
    is_first = false;
  }
  return context.heap.string(std::move(out));
}

Value format(Context& context, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    fail("format: values are either all named or all not named");
  }
  const std::string text = to_text(context.heap, self);
  if (arguments.named.empty()) {
    return printf_format(context.heap, text, context.heap.tuple(arguments.positional));
  }
  std::vector<DictEntry> entries;
  for (const auto& [name, value] : arguments.named) {
    entries.push_back({context.heap.string(name), value});
  }
  return printf_format(context.heap, text, context.heap.dict(std::move(entries)));
}

Value center(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("center", arguments, {"width"});
  const std::string text = to_text(context.heap, self);
  return context.heap.string(pad_text(context.heap, text, bound.integer(0, 80), " ", true, true));
}

Value escape(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("escape", arguments, {});
  std::string text = to_text(context.heap, self);
  for (const auto& [from, to] : {std::pair<const char*, const char*>{"&", "&amp;"},
                                 {"<", "&lt;"},
                                 {">", "&gt;"},
                                 {"'", "&#39;"},
                                 {"\"", "&#34;"}}) {
    text = replace_text(context.heap, text, from, to, -1);
  }
  return context.heap.string(std::move(text));
}

Value word_count(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("wordcount", arguments, {});
  const std::string text = to_text(context.heap, self);
  context.heap.step_characters(text.size());
  int64_t count = 0;
  bool in_word = false;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, &position);
    const bool is_word = c == '_' || is_alpha(c) || is_digit(c);
    if (is_word && !in_word) ++count;
    in_word = is_word;
  }
  return Value::integer(count);
}

constexpr FilterEntry kFilters[] = {
    {"string", to_string},
    {"trim", trim},
    {"upper", map_text<to_upper>},
    {"lower", map_text<to_lower>},
    {"title", map_text<title_words>},
    {"capitalize", map_text<capitalize>},
    {"replace", replace},
    {"join", join},
    {"indent", indent},
    {"format", format},
    {"center", center},
    {"escape", escape},
    {"e", escape},
    {"wordcount", word_count},
};

}  // namespace

std::span<const FilterEntry> text_filters() {
  return kFilters;
}

}  // namespace atom::jinja
