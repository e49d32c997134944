#include "server/openai/answer_rule_kinds.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/field_table.h"
#include "server/openai/list_kind.h"

namespace atom::server {
namespace {

const EnumKind& format_types() {
  static const EnumKind kind{{"text", "json_object", "json_schema", "structural_tag"}};
  return kind;
}

// What stands beside a schema and changes nothing.
void add_schema_notes(std::vector<FieldSpec>* fields) {
  fields->push_back(check_field("name", StringKind{.max_length = 256}, "The schema's name."));
  fields->push_back(check_field("description", StringKind(), "What the schema is for."));
  fields->push_back(check_field("strict", BoolKind(), "Schemas are always followed."));
}

const FieldTable& json_schema_table() {
  static const FieldTable table([] {
    std::vector<FieldSpec> fields;
    fields.push_back(check_field("schema", SchemaKind(), "What the answer follows."));
    add_schema_notes(&fields);
    return fields;
  }());
  return table;
}

void add_structural_tag(std::vector<FieldSpec>* fields) {
  fields->push_back(check_field("format", ObjectKind(), "Of a structural tag."));
  fields->push_back(check_field(
      "structures", ListKind<ObjectKind>{ObjectKind(), "objects"}, "Of an older structural tag."));
  fields->push_back(check_field(
      "triggers", ListKind<StringKind>{StringKind(), "strings"}, "Of an older structural tag."));
}

}  // namespace

AnswerRuleKind ResponseFormatKind() {
  static const FieldTable table([] {
    std::vector<FieldSpec> fields;
    fields.push_back(required(check_field("type", format_types(), "")));
    fields.push_back(
        check_field("json_schema", TableKind<InPlace>{&json_schema_table()}, "Of this type."));
    add_structural_tag(&fields);
    return fields;
  }());
  return AnswerRuleKind(table);
}

AnswerRuleKind ResponseTextFormatKind() {
  static const FieldTable table([] {
    std::vector<FieldSpec> fields;
    fields.push_back(
        required(check_field("type", EnumKind{{"text", "json_object", "json_schema"}}, "")));
    fields.push_back(check_field("schema", SchemaKind(), "What the answer follows."));
    add_schema_notes(&fields);
    return fields;
  }());
  return AnswerRuleKind(table);
}

AnswerRuleKind OutputFormatKind() {
  static const FieldTable table([] {
    std::vector<FieldSpec> fields;
    fields.push_back(required(check_field("type", EnumKind{{"json_schema"}}, "")));
    fields.push_back(check_field("schema", SchemaKind(), "What the answer follows."));
    return fields;
  }());
  return AnswerRuleKind(table);
}

AnswerRuleKind StructuredOutputsKind() {
  static const FieldTable table([] {
    std::vector<FieldSpec> fields;
    fields.push_back(check_field("json", SchemaKind(), "A schema that the answer follows."));
    fields.push_back(check_field("regex", pattern_kind(), "An expression that it matches."));
    fields.push_back(check_field("choice", choices_kind(), "The texts that it can be."));
    fields.push_back(check_field("grammar", grammar_kind(), "An EBNF grammar that it follows."));
    fields.push_back(check_field("json_object", BoolKind(), "It is a JSON object."));
    fields.push_back(check_field("structural_tag", SchemaKind(), "XGrammar's structural tag."));
    fields.push_back(hint_field("disable_fallback", "there is nothing to fall back to."));
    fields.push_back(hint_field("disable_any_whitespace", "white space is free up to a limit."));
    fields.push_back(
        hint_field("disable_additional_properties", "those not named are not allowed anyway."));
    fields.push_back(
        unsupported_field("whitespace_pattern", "[]", "white space is free up to a limit"));
    return fields;
  }());
  return AnswerRuleKind(table);
}

bool AnswerRuleKind::read(OrderedJson& value,
                          const FieldPath& path,
                          SharedJson* out,
                          ApiError* error) const {
  if (!table_->read(value, path, nullptr, error)) return false;
  if (out != nullptr) *out = std::make_shared<const OrderedJson>(std::move(value));
  return true;
}

void AnswerRuleKind::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  table_->describe(options, schema);
}

bool SchemaKind::read(OrderedJson& value,
                      const FieldPath& path,
                      SharedJson* out,
                      ApiError* error) const {
  if (!value.is_object() && !value.is_string()) return fail_type(error, path, value, expected());
  if (out != nullptr) *out = std::make_shared<const OrderedJson>(std::move(value));
  return true;
}

void SchemaKind::describe(const OpenApiOptions&, OrderedJson* schema) const {
  (*schema)["anyOf"] = {{{"type", "object"}}, {{"type", "string"}}};
}

namespace {

const EnumKind& tool_choice_names() {
  static const EnumKind kind{{"none", "auto", "required"}};
  return kind;
}

const FieldTable& function_name_table() {
  static const FieldTable table(
      {required(check_field("name", StringKind{.min_length = 1, .max_length = 256}, ""))});
  return table;
}

const FieldTable& named_tool_table(bool is_flat) {
  static const EnumKind types{{"function"}};
  static const FieldTable flat(
      {required(check_field("type", types, "")),
       required(check_field("name", StringKind{.min_length = 1, .max_length = 256}, ""))});
  static const FieldTable nested(
      {required(check_field("type", types, "")),
       required(check_field("function", TableKind<InPlace>{&function_name_table()}, ""))});
  return is_flat ? flat : nested;
}

// As many as a request has tools.
constexpr size_t kMaxAllowedTools = 256;

void add_allowed_tools(bool is_flat, std::vector<FieldSpec>* fields) {
  using Tools = ListKind<TableKind<InPlace>>;
  fields->push_back(required(check_field("mode", EnumKind{{"auto", "required"}}, "")));
  fields->push_back(required(check_field(
      "tools",
      Tools{TableKind<InPlace>{&named_tool_table(is_flat)}, "tools", 1, kMaxAllowedTools},
      "Tools of the request that the answer may call.")));
}

const FieldTable& allowed_tools_table(bool is_flat) {
  static const EnumKind types{{"allowed_tools"}};
  static const FieldTable flat([] {
    std::vector<FieldSpec> fields = {required(check_field("type", types, ""))};
    add_allowed_tools(/*is_flat=*/true, &fields);
    return fields;
  }());
  static const FieldTable inner([] {
    std::vector<FieldSpec> fields;
    add_allowed_tools(/*is_flat=*/false, &fields);
    return fields;
  }());
  static const FieldTable nested(
      {required(check_field("type", types, "")),
       required(check_field("allowed_tools", TableKind<InPlace>{&inner}, ""))});
  return is_flat ? flat : nested;
}

std::string name_of(const OrderedJson& tool, bool is_flat) {
  return (is_flat ? tool : tool["function"])["name"].get<std::string>();
}

}  // namespace

std::string ToolChoiceKind::expected() const {
  return tool_choice_names().expected() + ", the function to call, or allowed_tools";
}

bool ToolChoiceKind::read(OrderedJson& value,
                          const FieldPath& path,
                          ToolChoice* out,
                          ApiError* error) const {
  if (value.is_object() && value.value("type", OrderedJson()) == "allowed_tools") {
    if (!allowed_tools_table(is_flat).read(value, path, nullptr, error)) return false;
    if (out == nullptr) return true;
    const OrderedJson& rule = is_flat ? value : value["allowed_tools"];
    *out = rule["mode"] == "auto" ? ToolChoice::kAuto : ToolChoice::kRequired;
    for (const OrderedJson& tool : rule["tools"]) out->allowed.push_back(name_of(tool, is_flat));
    return true;
  }
  if (value.is_object()) {
    if (!named_tool_table(is_flat).read(value, path, nullptr, error)) return false;
    if (out != nullptr) *out = {ToolChoice::kNamed, name_of(value, is_flat)};
    return true;
  }
  if (!value.is_string()) return fail_type(error, path, value, expected());
  std::string name;
  if (!tool_choice_names().read(value, path, &name, error)) return false;
  if (out == nullptr) return true;
  *out = name == "none"   ? ToolChoice::kNone
         : name == "auto" ? ToolChoice::kAuto
                          : ToolChoice::kRequired;
  return true;
}

void ToolChoiceKind::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  OrderedJson names;
  OrderedJson named;
  tool_choice_names().describe(options, &names);
  named_tool_table(is_flat).describe(options, &named);
  OrderedJson allowed;
  allowed_tools_table(is_flat).describe(options, &allowed);
  (*schema)["anyOf"] = {std::move(names), std::move(named), std::move(allowed)};
}

OrderedJson tool_choice_json(const ToolChoice& choice) {
  if (!choice.allowed.empty()) {
    OrderedJson tools = OrderedJson::array();
    for (const std::string& name : choice.allowed) {
      tools.push_back({{"type", "function"}, {"name", name}});
    }
    return {{"type", "allowed_tools"},
            {"mode", choice == ToolChoice::kAuto ? "auto" : "required"},
            {"tools", std::move(tools)}};
  }
  switch (choice.kind) {
    case ToolChoice::kNone:
      return "none";
    case ToolChoice::kAuto:
      return "auto";
    case ToolChoice::kRequired:
      return "required";
    case ToolChoice::kNamed:
      break;
  }
  return {{"type", "function"}, {"name", choice.name}};
}

}  // namespace atom::server
