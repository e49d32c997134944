#include "tokenizer/chat_template/globals.h"

#include "tokenizer/chat_template/access.h"
#include "tokenizer/chat_template/operators.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/to_text.h"

namespace atom::jinja {
namespace {

Value range(Context& context, const Value&, const Arguments& arguments) {
  const BoundArguments bound("range", arguments, {"start", "stop", "step"}, 1);
  for (const Value& argument : arguments.positional) {
    if (!argument.is_integral()) fail("range() needs ints, not {}", type_name(argument));
  }
  const bool only_stop = bound.get(1) == nullptr;
  const int64_t start = only_stop ? 0 : bound.integer(0, 0);
  const int64_t stop = only_stop ? bound.integer(0, 0) : bound.integer(1, 0);
  const int64_t step = bound.integer(2, 1);
  if (step == 0) fail("range(): the step cannot be 0");
  ValueList items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() == kMaxRange) fail_limit("range() has more than {} items", kMaxRange);
    context.heap.step();
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return context.heap.sequence(SequenceKind::kRange, std::move(items));
}

// The dict that dict(mapping_or_pairs, name=value...) and namespace(...) start from.
std::vector<DictEntry> collect_entries(Context& context,
                                       std::string_view function,
                                       const Arguments& arguments) {
  std::vector<DictEntry> entries;
  if (arguments.positional.size() > 1) fail("{}() takes at most one unnamed argument", function);
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_dict()) {
      context.heap.step(1 + source.dict().entries.size() / 8);
      entries = source.dict().entries;
    } else {
      for (const Value& pair : iterate(context.heap, source)) {
        const auto parts = iterate(context.heap, pair);
        if (parts.size() != 2) fail("{}() needs pairs of a key and a value", function);
        put_entry(context.heap, &entries, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    put_entry(context.heap, &entries, context.heap.string(name), value);
  }
  return entries;
}

Value make_dict(Context& context, const Value&, const Arguments& arguments) {
  return context.heap.dict(collect_entries(context, "dict", arguments));
}

Value make_namespace(Context& context, const Value&, const Arguments& arguments) {
  Value result = context.heap.name_space();
  Namespace& name_space = result.name_space();
  for (const DictEntry& entry : collect_entries(context, "namespace", arguments)) {
    if (!entry.key.is_string()) fail("namespace() needs names of type str");
    name_space.charge.grow(entry.key.text().size() + sizeof(DictEntry));
    name_space.attributes.emplace_back(entry.key.text(), entry.value);
  }
  return result;
}

Value raise_exception(Context& context, const Value&, const Arguments& arguments) {
  const BoundArguments bound("raise_exception", arguments, {"message"}, 1);
  fail("the template refuses this conversation: {}", to_text(context.heap, *bound.get(0)));
}

Value strftime_now(Context& context, const Value&, const Arguments& arguments) {
  const BoundArguments bound("strftime_now", arguments, {"format"}, 1);
  const std::string* format = bound.text(0);
  if (format == nullptr) fail("strftime_now() needs a format such as '%Y-%m-%d'");
  context.heap.step_bytes(format->size());
  // A mark in front tells an empty result from a buffer that is too small.
  const std::string marked = "." + *format;
  char buffer[1024];
  const size_t size = std::strftime(buffer, sizeof(buffer), marked.c_str(), &context.now);
  if (size == 0) fail("strftime_now(): the result is longer than {} bytes", sizeof(buffer));
  return context.heap.string(std::string(buffer + 1, size - 1));
}

struct GlobalEntry {
  std::string_view name;
  NativeFunction function;
};

constexpr GlobalEntry kGlobals[] = {
    {"range", range},
    {"dict", make_dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

NativeFunction find_global(std::string_view name) {
  for (const GlobalEntry& entry : kGlobals) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace atom::jinja
