#include "tokenizer/chat_template/json_value.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/to_text.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom::jinja {
namespace {

Value string_from_json(Heap& heap, const std::string& text) {
  heap.step_bytes(4 * text.size());
  if (!is_valid_utf8(text)) fail("a text of the conversation is not valid UTF-8");
  heap.require(text.size());
  return heap.string(text);
}

Value convert(Heap& heap, const OrderedJson& json, int depth) {
  heap.step();
  if (depth > kMaxValueDepth) fail("the conversation is nested deeper than {}", kMaxValueDepth);
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned: {
      const uint64_t number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail("the conversation has the integer {}; the largest allowed is 2^63 - 1", number);
      }
      return Value::integer(static_cast<int64_t>(number));
    }
    case OrderedJson::value_t::number_float:
      return Value::real(json.get<double>());
    case OrderedJson::value_t::string:
      return string_from_json(heap, json.get_ref<const std::string&>());
    case OrderedJson::value_t::array: {
      heap.require(json.size() * sizeof(Value));
      ValueList items;
      items.reserve(json.size());
      for (const OrderedJson& item : json) items.push_back(convert(heap, item, depth + 1));
      return heap.list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      heap.require(json.size() * sizeof(DictEntry));
      std::vector<DictEntry> entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.get_ref<const OrderedJson::object_t&>()) {
        entries.push_back({string_from_json(heap, key), convert(heap, item, depth + 1)});
      }
      return heap.dict(std::move(entries));
    }
    default:
      return Value::none();
  }
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonDumpOptions& options)
      : heap_(heap), options_(options), charge_(&heap, 0) {}

  std::string take() { return std::move(out_); }

  void write(const Value& value, size_t level = 0) {
    heap_.step();
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_boolean()) {
      out_ += value.boolean() ? "true" : "false";
    } else if (value.is_integer()) {
      out_ += std::to_string(value.integral());
    } else if (value.is_real()) {
      out_ += number_text(value.number());
    } else if (value.is_string()) {
      write_string(value.text());
    } else if (value.is_dict()) {
      write_dict(value.dict(), level);
    } else if (value.is_sequence() && (value.sequence().kind == SequenceKind::kList ||
                                       value.sequence().kind == SequenceKind::kTuple)) {
      write_list(value.sequence(), level);
    } else if (value.is_undefined()) {
      fail("tojson of an undefined value: {}", value.undefined_reason());
    } else {
      fail("an object of type {} cannot be written as JSON (add '|list'?)", type_name(value));
    }
    if (out_.size() > charge_.bytes()) charge_.grow(out_.size() - charge_.bytes());
  }

 private:
  static std::string number_text(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  static std::string key_text(const Value& key) {
    if (key.is_string()) return key.text();
    if (key.is_none()) return "null";
    if (key.is_boolean()) return key.boolean() ? "true" : "false";
    if (key.is_integer()) return std::to_string(key.integral());
    if (key.is_real()) return number_text(key.number());
    fail("keys of JSON must be str, int, float, bool or None, not {}", type_name(key));
  }

  void new_line(size_t level) {
    if (!options_.is_indented) return;
    heap_.require(level * options_.indent.size());
    heap_.step_bytes(level * options_.indent.size());
    out_ += '\n';
    for (size_t i = 0; i < level; ++i) out_ += options_.indent;
  }

  void write_separator(const std::string& separator) {
    heap_.require(separator.size());
    heap_.step_bytes(separator.size());
    out_ += separator;
  }

  void write_list(const Sequence& list, size_t level) {
    if (list.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) write_separator(options_.item_separator);
      new_line(level + 1);
      write(list.items[i], level + 1);
    }
    new_line(level);
    out_ += ']';
  }

  void write_dict(const Dict& dict, size_t level) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    heap_.step(1 + dict.entries.size() / 8);
    std::vector<const DictEntry*> entries;
    for (const DictEntry& entry : dict.entries) entries.push_back(&entry);
    if (options_.sort_keys) sort_entries(&entries);
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) write_separator(options_.item_separator);
      new_line(level + 1);
      write_string(key_text(entries[i]->key));
      write_separator(options_.key_separator);
      write(entries[i]->value, level + 1);
    }
    new_line(level);
    out_ += '}';
  }

  void sort_entries(std::vector<const DictEntry*>* entries) {
    for (const DictEntry* entry : *entries) {
      if (!entry->key.is_string()) fail("tojson(sort_keys=true) needs keys that are all str");
    }
    std::stable_sort(entries->begin(), entries->end(), [this](const auto* a, const auto* b) {
      heap_.step_bytes(std::min(a->key.text().size(), b->key.text().size()));
      return a->key.text() < b->key.text();
    });
  }

  void write_string(std::string_view text) {
    heap_.step_characters(text.size());
    out_ += '"';
    for (size_t position = 0; position < text.size();) {
      const size_t start = position;
      const char32_t c = next_code_point(text, &position);
      switch (c) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\b':
          out_ += "\\b";
          break;
        case '\f':
          out_ += "\\f";
          break;
        default:
          if (c < 0x20 || (options_.ensure_ascii && c > 0x7E)) {
            write_escape(c);
          } else {
            out_.append(text.substr(start, position - start));
          }
      }
    }
    out_ += '"';
  }

  void write_escape(char32_t c) {
    if (c < 0x10000) {
      out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      const uint32_t offset = static_cast<uint32_t>(c) - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
    }
  }

  Heap& heap_;
  const JsonDumpOptions& options_;
  Charge charge_;
  std::string out_;
};

}  // namespace

Value value_from_json(Heap& heap, const OrderedJson& json) {
  return convert(heap, json, 1);
}

std::string dump_json(Heap& heap, const Value& value, const JsonDumpOptions& options) {
  JsonWriter writer(heap, options);
  writer.write(value);
  return writer.take();
}

}  // namespace atom::jinja
