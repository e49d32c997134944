#include "structured_output/structural_tag.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "structured_output/grammar_check.h"
#include "structured_output/json_schema.h"
#include "structured_output/pattern_limits.h"
#include "structured_output/schema_scalars.h"

namespace atom {
namespace {

constexpr size_t kMaxTexts = 1'000;
constexpr size_t kMaxTagDepth = 32;
// Between two parts of a JSON text, or a model could write white space without end.
constexpr int kMaxWhiteSpace = 24;

OrderedJson json_format(OrderedJson schema) {
  return {{"type", "json_schema"},
          {"json_schema", std::move(schema)},
          {"max_whitespace_cnt", kMaxWhiteSpace}};
}

std::string text_member(const OrderedJson& object, const char* name) {
  return object.contains(name) && object[name].is_string() ? object[name].get<std::string>()
                                                           : std::string();
}

// Puts schemas into the form that is enforced, and checks what is in other languages.
Status prepare_format(OrderedJson* format, const std::string& where, size_t depth) {
  if (depth > kMaxTagDepth) {
    return invalid_argument("{}: nested more than {} levels deep", where, kMaxTagDepth);
  }
  if (format->is_array()) {
    for (size_t i = 0; i < format->size(); ++i) {
      RETURN_IF_ERROR(prepare_format(&(*format)[i], fmt::format("{}[{}]", where, i), depth + 1));
    }
  }
  if (!format->is_object()) return {};
  const std::string type = text_member(*format, "type");
  if (format->contains("json_schema")) {
    const std::string below = place_of(where, "json_schema");
    ASSIGN_OR_RETURN((*format)["json_schema"],
                     prepare_json_schema((*format)["json_schema"], below));
    if (!format->contains("max_whitespace_cnt")) (*format)["max_whitespace_cnt"] = kMaxWhiteSpace;
    return {};
  }
  if (type == "regex") {
    return check_regex(text_member(*format, "pattern"), place_of(where, "pattern"));
  }
  if (type == "grammar") {
    return check_ebnf(text_member(*format, "grammar"), place_of(where, "grammar"));
  }
  for (const char* bound : {"min", "max", "max_tokens", "max_chars"}) {
    if (!format->contains(bound) || !(*format)[bound].is_number()) continue;
    if ((*format)[bound].get<double>() > static_cast<double>(kMaxPatternParts)) {
      return invalid_argument("{}: expected at most {}", place_of(where, bound), kMaxPatternParts);
    }
  }
  for (const auto& [name, member] : format->items()) {
    RETURN_IF_ERROR(prepare_format(&member, place_of(where, name), depth + 1));
  }
  return {};
}

// {"structures": [{"begin", "schema", "end"}], "triggers": [...]}
Result<OrderedJson> from_older_form(const OrderedJson& tag, const std::string& where) {
  OrderedJson tags = OrderedJson::array();
  for (const OrderedJson& structure : tag["structures"]) {
    if (!structure.is_object()) {
      return invalid_argument("{}: expected objects", place_of(where, "structures"));
    }
    tags.push_back({{"type", "tag"},
                    {"begin", structure.value("begin", OrderedJson())},
                    {"content",
                     {{"type", "json_schema"},
                      {"json_schema", structure.value("schema", OrderedJson::object())}}},
                    {"end", structure.value("end", OrderedJson())}});
  }
  return OrderedJson{{"type", "triggered_tags"},
                     {"triggers", tag.value("triggers", OrderedJson::array())},
                     {"tags", std::move(tags)}};
}

}  // namespace

Result<OrderedJson> json_schema_format(const OrderedJson& schema, const std::string& where) {
  ASSIGN_OR_RETURN(OrderedJson prepared, prepare_json_schema(schema, where));
  return json_format(std::move(prepared));
}

OrderedJson json_object_format() {
  return json_format({{"type", "object"}, {"additionalProperties", true}});
}

Result<OrderedJson> regex_format(const std::string& pattern, const std::string& where) {
  RETURN_IF_ERROR(check_regex(pattern, where));
  return OrderedJson{{"type", "regex"}, {"pattern", pattern}};
}

Result<OrderedJson> ebnf_format(const std::string& grammar, const std::string& where) {
  RETURN_IF_ERROR(check_ebnf(grammar, where));
  return OrderedJson{{"type", "grammar"}, {"grammar", grammar}};
}

Result<OrderedJson> choice_format(const std::vector<std::string>& choices,
                                  const std::string& where) {
  if (choices.empty() || choices.size() > kMaxTexts) {
    return invalid_argument("{}: expected 1 to {} texts", where, kMaxTexts);
  }
  OrderedJson elements = OrderedJson::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].empty()) {
      return invalid_argument("{}[{}]: expected a text that is not empty", where, i);
    }
    elements.push_back({{"type", "const_string"}, {"value", choices[i]}});
  }
  if (elements.size() == 1) return OrderedJson(elements[0]);
  return OrderedJson{{"type", "or"}, {"elements", std::move(elements)}};
}

Result<OrderedJson> structural_tag_format(const OrderedJson& tag, const std::string& where) {
  if (!tag.is_object()) return invalid_argument("{}: expected an object", where);
  OrderedJson format;
  if (tag.contains("structures") && tag["structures"].is_array()) {
    ASSIGN_OR_RETURN(format, from_older_form(tag, where));
  } else if (tag.contains("format")) {
    format = tag["format"];
  } else {
    return invalid_argument("{}: expected 'format', or 'structures' and 'triggers'", where);
  }
  RETURN_IF_ERROR(prepare_format(&format, place_of(where, "format"), 0));
  return format;
}

Result<std::string> structural_tag_text(OrderedJson format, const std::string& where) {
  const OrderedJson tag = {{"type", "structural_tag"}, {"format", std::move(format)}};
  std::string text = json_text(tag);
  if (text.size() > kMaxStructuralTagBytes) {
    return invalid_argument("{}: it has {} KiB; expected at most {}",
                            where,
                            text.size() >> 10,
                            kMaxStructuralTagBytes >> 10);
  }
  RETURN_IF_ERROR(check_structural_tag(text, where));
  return text;
}

}  // namespace atom
