#include "server/answer_rules.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "server/openai/field_error.h"
#include "structured_output/structural_tag.h"

namespace atom::server {
namespace {

using Format = std::optional<OrderedJson>;

// What is not given is null.
const OrderedJson& member(const OrderedJson& object, const char* name) {
  static const OrderedJson none;
  return object.contains(name) ? object[name] : none;
}

Result<OrderedJson> parsed(const OrderedJson& value, const std::string& where) {
  if (!value.is_string()) return value;
  return parse_ordered_json(value.get_ref<const std::string&>(), where);
}

Result<Format> schema_rule(const OrderedJson& value, const std::string& where) {
  if (value.is_null()) return invalid_argument("{}: it is missing; expected a schema", where);
  ASSIGN_OR_RETURN(const OrderedJson schema, parsed(value, where));
  ASSIGN_OR_RETURN(OrderedJson format, json_schema_format(schema, where));
  return Format(std::move(format));
}

Result<Format> tag_rule(const OrderedJson& value, const std::string& where) {
  ASSIGN_OR_RETURN(const OrderedJson tag, parsed(value, where));
  ASSIGN_OR_RETURN(OrderedJson format, structural_tag_format(tag, where));
  return Format(std::move(format));
}

Result<Format> regex_rule(const std::string& pattern, const std::string& where) {
  ASSIGN_OR_RETURN(OrderedJson format, regex_format(pattern, where));
  return Format(std::move(format));
}

Result<Format> grammar_rule(const std::string& grammar, const std::string& where) {
  ASSIGN_OR_RETURN(OrderedJson format, ebnf_format(grammar, where));
  return Format(std::move(format));
}

Result<Format> choice_rule(const std::vector<std::string>& choices, const std::string& where) {
  ASSIGN_OR_RETURN(OrderedJson format, choice_format(choices, where));
  return Format(std::move(format));
}

// {"type": ...}; the schema is in `schema_in`, a member, or beside the type.
Result<Format> typed_rule(const OrderedJson& rule,
                          const char* schema_in,
                          const std::string& where) {
  const auto type = rule["type"].get<std::string>();
  if (type == "text") return Format();
  if (type == "json_object") return Format(json_object_format());
  if (type == "structural_tag") return tag_rule(rule, where);
  if (schema_in == nullptr) return schema_rule(member(rule, "schema"), where + ".schema");
  const OrderedJson& inner = member(rule, schema_in);
  const std::string place = fmt::format("{}.{}", where, schema_in);
  if (inner.is_null()) return invalid_argument("{}: it is missing; expected an object", place);
  return schema_rule(member(inner, "schema"), place + ".schema");
}

Result<Format> structured_outputs_rule(const OrderedJson& rule) {
  const std::string where = "structured_outputs";
  std::vector<std::string> given;
  for (const char* name : {"json", "regex", "choice", "grammar", "json_object", "structural_tag"}) {
    const OrderedJson& value = member(rule, name);
    if (!value.is_null() && value != false) given.emplace_back(name);
  }
  if (given.size() != 1) {
    return invalid_argument(
        "{}: {} of its fields are given; expected one of json, regex, choice, grammar, json_object "
        "and structural_tag",
        where,
        given.size());
  }
  const OrderedJson& value = rule[given[0]];
  const std::string place = where + "." + given[0];
  if (given[0] == "json") return schema_rule(value, place);
  if (given[0] == "regex") return regex_rule(value.get<std::string>(), place);
  if (given[0] == "choice") return choice_rule(value.get<std::vector<std::string>>(), place);
  if (given[0] == "grammar") return grammar_rule(value.get<std::string>(), place);
  if (given[0] == "json_object") return Format(json_object_format());
  return tag_rule(value, place);
}

// Each rule that is given, by its field.
struct Given {
  const char* field;
  Result<Format> format;
};

std::vector<Given> read_all(const AnswerRules& rules) {
  std::vector<Given> all;
  if (rules.response_format != nullptr) {
    all.push_back(
        {"response_format", typed_rule(*rules.response_format, "json_schema", "response_format")});
  }
  if (rules.text_format != nullptr) {
    all.push_back({"text.format", typed_rule(*rules.text_format, nullptr, "text.format")});
  }
  if (rules.output_format != nullptr) {
    all.push_back({"output_format", typed_rule(*rules.output_format, nullptr, "output_format")});
  }
  if (rules.structured_outputs != nullptr) {
    all.push_back({"structured_outputs", structured_outputs_rule(*rules.structured_outputs)});
  }
  if (rules.guided_json != nullptr) {
    all.push_back({"guided_json", schema_rule(*rules.guided_json, "guided_json")});
  }
  if (rules.json_schema != nullptr) {
    all.push_back({"json_schema", schema_rule(*rules.json_schema, "json_schema")});
  }
  if (rules.structural_tag != nullptr) {
    all.push_back({"structural_tag", tag_rule(*rules.structural_tag, "structural_tag")});
  }
  if (!rules.guided_choice.empty()) {
    all.push_back({"guided_choice", choice_rule(rules.guided_choice, "guided_choice")});
  }
  const auto add_text = [&](const char* field, const std::string& text, auto rule) {
    if (!text.empty()) all.push_back({field, rule(text, field)});
  };
  add_text("guided_regex", rules.guided_regex, regex_rule);
  add_text("regex", rules.regex, regex_rule);
  add_text("guided_grammar", rules.guided_grammar, grammar_rule);
  add_text("ebnf", rules.ebnf, grammar_rule);
  add_text("grammar", rules.grammar, grammar_rule);
  return all;
}

}  // namespace

ApiError rule_error(const Status& status) {
  const std::string& message = status.message();
  ApiError error = to_request_error(status);
  error.http_status = 400;
  error.type = "invalid_request_error";
  error.message = printable(message, 1'000);
  error.param = printable(message.substr(0, message.find(':')), 200);
  error.code = status.code() == StatusCode::kUnimplemented ? kUnsupportedField : kInvalidValue;
  return error;
}

bool read_answer_rules(const AnswerRules& rules,
                       std::optional<OrderedJson>* format,
                       ApiError* error) {
  const char* first = nullptr;
  for (Given& given : read_all(rules)) {
    if (!given.format.ok()) {
      *error = rule_error(given.format.status());
      return false;
    }
    if (!given.format->has_value()) continue;
    if (first != nullptr) {
      return fail(error,
                  FieldPath().field(given.field),
                  kConflictingFields,
                  fmt::format("{} and {} both say what the answer has to be; expected at most one",
                              first,
                              given.field));
    }
    first = given.field;
    *format = std::move(given.format).value();
  }
  return true;
}

bool constrain_completion(const AnswerRules& rules, SamplingParams* sampling, ApiError* error) {
  std::optional<OrderedJson> format;
  if (!read_answer_rules(rules, &format, error)) return false;
  if (!format) return true;
  Result<std::string> tag = structural_tag_text(*std::move(format), "the answer's form");
  if (tag.ok()) {
    sampling->structural_tag = std::move(tag).value();
    return true;
  }
  *error = rule_error(tag.status());
  return false;
}

}  // namespace atom::server
