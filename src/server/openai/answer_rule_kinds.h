// Kinds of the fields that say what form an answer has to have, and which tools it has to call.
// They check shapes; schemas, expressions and grammars are read when the answer is prepared
// (server/answer_rules.h).
#pragma once

#include <string>

#include "server/openai/field_kinds.h"
#include "server/openai/list_kind.h"
#include "server/openai/request_kinds.h"

namespace atom::server {

// An object whose members one table knows, kept as it was given.
class AnswerRuleKind {
 public:
  using Value = SharedJson;

  explicit AnswerRuleKind(const FieldTable& table) : table_(&table) {}
  std::string expected() const { return "an object"; }
  bool read(OrderedJson& value, const FieldPath& path, SharedJson* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;

 private:
  const FieldTable* table_;  // static
};

// {"type": "json_schema", "json_schema": {"schema": ...}}
AnswerRuleKind ResponseFormatKind();
// {"type": "json_schema", "schema": ...}
AnswerRuleKind ResponseTextFormatKind();
// The same of Anthropic's API.
AnswerRuleKind OutputFormatKind();
// {"json": ...}, {"regex": ...}, ...
AnswerRuleKind StructuredOutputsKind();

// A JSON object, or the text of one.
struct SchemaKind {
  using Value = SharedJson;
  std::string expected() const { return "an object or its text"; }
  bool read(OrderedJson& value, const FieldPath& path, SharedJson* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

inline StringKind pattern_kind() {
  return {.max_length = 8192};
}
inline StringKind grammar_kind() {
  return {.max_length = 65536};
}
inline ListKind<StringKind> choices_kind() {
  return {StringKind{.max_length = 4096}, "strings", 0, 1000};
}

// "none", "auto", "required", the tool that has to be called, or the tools that may be.
struct ToolChoiceKind {
  using Value = ToolChoice;
  // {"type": "function", "name"} and {"type": "allowed_tools", "mode", "tools"}, else
  // {"type", "function": {"name"}} and {"type", "allowed_tools": {"mode", "tools"}}.
  bool is_flat = false;

  std::string expected() const;
  bool read(OrderedJson& value, const FieldPath& path, ToolChoice* out, ApiError* error) const;
  void describe(const OpenApiOptions& options, OrderedJson* schema) const;
};

// As ToolChoiceKind reads it, flat.
OrderedJson tool_choice_json(const ToolChoice& choice);

}  // namespace atom::server
