#include "server/parsers/answer_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "structured_output/structural_tag.h"

namespace atom::server {
namespace {

// SECTION_BEGIN (CALL_BEGIN name NAME_END arguments CALL_END SEPARATOR)... SECTION_END
struct CallShape {
  std::string_view syntax = {};
  std::string_view trigger =
      {};  // with which section_begin and call_begin begin: no other text has it
  std::string_view section_begin = {};
  std::string_view call_begin = {};
  std::string_view name_end = {};
  std::string_view call_end = {};
  std::string_view separator = {};
  std::string_view section_end = {};
  std::string_view style = "json";  // of the arguments
  bool numbered = false;            // a number follows the name
};

constexpr std::string_view kHarmony = "harmony";

constexpr CallShape kShapes[] = {
    {.syntax = "hermes",
     .trigger = "<tool_call>",
     .call_begin = "<tool_call>\n{\"name\": \"",
     .name_end = "\", \"arguments\": ",
     .call_end = "}\n</tool_call>",
     .separator = "\n"},
    {.syntax = "qwen3_coder",
     .trigger = "<tool_call>",
     .call_begin = "<tool_call>\n<function=",
     .name_end = ">\n",
     .call_end = "\n</function>\n</tool_call>",
     .separator = "\n",
     .style = "qwen_xml"},
    {.syntax = "glm45",
     .trigger = "<tool_call>",
     .call_begin = "<tool_call>",
     .name_end = "\n",
     .call_end = "\n</tool_call>",
     .separator = "\n",
     .style = "glm_xml"},
    {.syntax = "deepseek_v3",
     .trigger = "<｜tool▁calls▁begin｜>",
     .section_begin = "<｜tool▁calls▁begin｜>",
     .call_begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .name_end = "\n```json\n",
     .call_end = "\n```<｜tool▁call▁end｜>",
     .separator = "\n",
     .section_end = "<｜tool▁calls▁end｜>"},
    {.syntax = "deepseek_v31",
     .trigger = "<｜tool▁calls▁begin｜>",
     .section_begin = "<｜tool▁calls▁begin｜>",
     .call_begin = "<｜tool▁call▁begin｜>",
     .name_end = "<｜tool▁sep｜>",
     .call_end = "<｜tool▁call▁end｜>",
     .section_end = "<｜tool▁calls▁end｜>"},
    {.syntax = "deepseek_v32",
     .trigger = "<｜DSML｜function_calls>",
     .section_begin = "<｜DSML｜function_calls>\n",
     .call_begin = "<｜DSML｜invoke name=\"",
     .name_end = "\">\n",
     .call_end = "\n</｜DSML｜invoke>\n",
     .section_end = "</｜DSML｜function_calls>",
     .style = "deepseek_xml"},
    {.syntax = "llama3_json",
     .trigger = "{\"name\": \"",
     .call_begin = "{\"name\": \"",
     .name_end = "\", \"parameters\": ",
     .call_end = "}",
     .separator = "; "},
    {.syntax = "mistral",
     .trigger = "[TOOL_CALLS]",
     .section_begin = "[TOOL_CALLS][",
     .call_begin = "{\"name\": \"",
     .name_end = "\", \"arguments\": ",
     .call_end = "}",
     .separator = ", ",
     .section_end = "]"},
    {.syntax = "kimi_k2",
     .trigger = "<|tool_calls_section_begin|>",
     .section_begin = "<|tool_calls_section_begin|>",
     .call_begin = "<|tool_call_begin|>functions.",
     .name_end = "<|tool_call_argument_begin|>",
     .call_end = "<|tool_call_end|>",
     .section_end = "<|tool_calls_section_end|>",
     .numbered = true},
    // The token that ends a call ends the answer.
    {.syntax = kHarmony,
     .call_begin = "<|channel|>commentary to=functions.",
     .name_end = " <|constrain|>json<|message|>"},
};

OrderedJson text_format(std::string_view text) {
  return {{"type", "const_string"}, {"value", text}};
}

OrderedJson sequence(OrderedJson elements) {
  if (elements.size() == 1) return OrderedJson(std::move(elements[0]));
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

OrderedJson either(OrderedJson elements) {
  if (elements.size() == 1) return OrderedJson(std::move(elements[0]));
  return {{"type", "or"}, {"elements", std::move(elements)}};
}

// The parts by the first and the last of them, each a text or a token.
OrderedJson tag_of(const OrderedJson& parts) {
  const auto mark = [](const OrderedJson& part) {
    return part["type"] == "token" ? part : part["value"];
  };
  return {{"type", "tag"},
          {"begin", mark(parts.front())},
          {"content", sequence(OrderedJson(parts.begin() + 1, parts.end() - 1))},
          {"end", mark(parts.back())}};
}

class Builder {
 public:
  Builder(const AnswerGrammarRequest& request, const CallShape* shape)
      : request_(request), shape_(shape) {}

  Result<OrderedJson> build();

 private:
  using Calls = AnswerGrammarRequest::Calls;

  void append_literal(std::string_view text, OrderedJson* elements) const;
  Result<OrderedJson> arguments_of(const CallableTool& tool) const;
  Result<OrderedJson> call_of(const CallableTool& tool) const;
  Result<OrderedJson> calls() const;
  Result<OrderedJson> triggered_tags() const;
  Result<OrderedJson> triggered_calls() const;
  Result<OrderedJson> harmony() const;

  const AnswerGrammarRequest& request_;
  const CallShape* shape_;  // null: no calls are understood
};

// The text with its special tokens as such.
void Builder::append_literal(std::string_view text, OrderedJson* elements) const {
  while (!text.empty()) {
    size_t first = text.size();
    const std::pair<std::string, int32_t>* token = nullptr;
    for (const auto& special : request_.special_tokens) {
      const size_t found = text.find(special.first);
      if (found < first) {
        first = found;
        token = &special;
      }
    }
    if (first > 0) elements->push_back(text_format(text.substr(0, first)));
    if (token == nullptr) return;
    elements->push_back({{"type", "token"}, {"token", token->second}});
    text.remove_prefix(first + token->first.size());
  }
}

Result<OrderedJson> Builder::arguments_of(const CallableTool& tool) const {
  const bool follows = tool.strict || request_.calls == Calls::kForced;
  const OrderedJson any = {{"type", "object"}};
  const OrderedJson& schema = follows && tool.parameters != nullptr ? *tool.parameters : any;
  ASSIGN_OR_RETURN(OrderedJson format, json_schema_format(schema, tool.where));
  if (shape_->style != "json") format["style"] = shape_->style;
  return format;
}

Result<OrderedJson> Builder::call_of(const CallableTool& tool) const {
  OrderedJson elements = OrderedJson::array();
  std::string head = std::string(shape_->call_begin) + tool.name;
  if (shape_->numbered) {
    append_literal(head + ":", &elements);
    elements.push_back({{"type", "regex"}, {"pattern", "[0-9]{1,2}"}});
    head.clear();
  }
  append_literal(head + std::string(shape_->name_end), &elements);
  ASSIGN_OR_RETURN(OrderedJson arguments, arguments_of(tool));
  elements.push_back(std::move(arguments));
  append_literal(shape_->call_end, &elements);
  return sequence(std::move(elements));
}

Result<OrderedJson> Builder::calls() const {
  OrderedJson each = OrderedJson::array();
  for (const CallableTool& tool : request_.tools) {
    ASSIGN_OR_RETURN(OrderedJson call, call_of(tool));
    each.push_back(std::move(call));
  }
  const OrderedJson any = either(std::move(each));
  OrderedJson elements = OrderedJson::array();
  append_literal(shape_->section_begin, &elements);
  elements.push_back(any);
  if (request_.parallel && shape_->syntax != kHarmony) {
    OrderedJson next = OrderedJson::array();
    append_literal(shape_->separator, &next);
    next.push_back(any);
    elements.push_back({{"type", "star"}, {"content", sequence(std::move(next))}});
  }
  append_literal(shape_->section_end, &elements);
  return sequence(std::move(elements));
}

// Where calls stand in sections: a section of them. Else a call of each tool.
Result<OrderedJson> Builder::triggered_tags() const {
  OrderedJson tags = OrderedJson::array();
  if (!shape_->section_begin.empty()) {
    ASSIGN_OR_RETURN(const OrderedJson section, calls());
    tags.push_back(tag_of(section["elements"]));
    return tags;
  }
  for (const CallableTool& tool : request_.tools) {
    ASSIGN_OR_RETURN(const OrderedJson call, call_of(tool));
    tags.push_back(tag_of(call["elements"]));
  }
  return tags;
}

// Any text, and calls where it has the mark of one.
Result<OrderedJson> Builder::triggered_calls() const {
  ASSIGN_OR_RETURN(OrderedJson tags, triggered_tags());
  const OrderedJson& begin = tags[0]["begin"];
  OrderedJson format;
  if (begin.is_object()) {
    format = {{"type", "token_triggered_tags"},
              {"trigger_tokens", OrderedJson::array({begin["token"]})}};
  } else {
    format = {{"type", "triggered_tags"}, {"triggers", OrderedJson::array({shape_->trigger})}};
  }
  format["tags"] = std::move(tags);
  return format;
}

Result<OrderedJson> Builder::harmony() const {
  OrderedJson answers = OrderedJson::array();
  if (request_.calls != Calls::kForced) {
    OrderedJson final = OrderedJson::array();
    append_literal("<|channel|>final<|message|>", &final);
    final.push_back(request_.content != nullptr ? *request_.content
                                                : OrderedJson{{"type", "any_text"}});
    answers.push_back(sequence(std::move(final)));
  }
  if (request_.calls != Calls::kNone) {
    ASSIGN_OR_RETURN(OrderedJson called, calls());
    answers.push_back(std::move(called));
  }
  OrderedJson elements = OrderedJson::array();
  append_literal("<|channel|>analysis<|message|>", &elements);
  OrderedJson end = OrderedJson::array();
  append_literal("<|end|><|start|>assistant", &end);
  const bool has_tokens = end[0]["type"] == "token";
  if (has_tokens) {
    elements.push_back(
        {{"type", "any_tokens"}, {"exclude_tokens", OrderedJson::array({end[0]["token"]})}});
    for (OrderedJson& part : end) elements.push_back(std::move(part));
  } else {
    elements = OrderedJson::array({{{"type", "tag"},
                                    {"begin", "<|channel|>analysis<|message|>"},
                                    {"content", {{"type", "any_text"}}},
                                    {"end", "<|end|><|start|>assistant"}}});
  }
  OrderedJson analysis = {{"type", "optional"}, {"content", sequence(std::move(elements))}};
  return sequence(OrderedJson::array({std::move(analysis), either(std::move(answers))}));
}

Result<OrderedJson> Builder::build() {
  if (shape_ != nullptr && shape_->syntax == kHarmony) return harmony();
  if (request_.calls == Calls::kNone) return *request_.content;
  if (request_.calls == Calls::kForced) return calls();
  if (request_.content == nullptr) return triggered_calls();
  ASSIGN_OR_RETURN(OrderedJson called, calls());
  return either(OrderedJson::array({*request_.content, std::move(called)}));
}

}  // namespace

Result<OrderedJson> answer_grammar(const AnswerGrammarRequest& request) {
  const auto* found = std::ranges::find(kShapes, request.syntax, &CallShape::syntax);
  const CallShape* shape = found == std::end(kShapes) ? nullptr : found;
  if (shape == nullptr && request.calls != AnswerGrammarRequest::Calls::kNone) {
    return unimplemented(
        "tool_choice: tool calls are not understood in this model's answers, see "
        "--tool-call-parser");
  }
  return Builder(request, shape).build();
}

OrderedJson behind_reasoning(const std::string& begin, const std::string& end, OrderedJson answer) {
  OrderedJson reasoning = {
      {"type", "tag"}, {"begin", begin}, {"content", {{"type", "any_text"}}}, {"end", end}};
  if (!begin.empty()) reasoning = {{"type", "optional"}, {"content", std::move(reasoning)}};
  return sequence(OrderedJson::array({std::move(reasoning), std::move(answer)}));
}

}  // namespace atom::server
