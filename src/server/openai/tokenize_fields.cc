#include <nlohmann/json.hpp>

#include "server/openai/list_kind.h"
#include "server/openai/message_kinds.h"
#include "server/openai/request_kinds.h"
#include "server/openai/request_tables.h"

namespace atom::server {
namespace {

template <typename Kind, typename Member>
FieldSpec field(const char* name, const Kind& kind, Member member, const char* description) {
  return bound_field<TokenizeFields>(name, kind, member, description);
}

FieldSpec model_field() {
  return field(
      "model",
      StringKind{.max_length = 1024},
      [](auto& fields) -> auto& { return fields.model; },
      "The model whose tokenizer to use; when left out, the first one served.");
}

FieldSpec add_special_tokens_field(const char* description) {
  return field(
      "add_special_tokens",
      BoolKind(),
      [](auto& fields) -> auto& { return fields.add_special_tokens; },
      description);
}

FieldSpec return_token_strs_field() {
  return field(
      "return_token_strs",
      BoolKind(),
      [](auto& fields) -> auto& { return fields.return_token_strs; },
      "Return each token's text, too.");
}

}  // namespace

const FieldTable& tokenize_prompt_table() {
  static const FieldTable table({
      model_field(),
      required(field(
          "prompt",
          StringKind(),
          [](auto& fields) -> auto& { return fields.prompt; },
          "The text to tokenize.")),
      unsupported_field("messages", "[]", "give either a prompt or messages"),
      add_special_tokens_field("Add the tokens that begin a text; true when left out."),
      return_token_strs_field(),
  });
  return table;
}

const FieldTable& tokenize_chat_table() {
  static const FieldTable table({
      model_field(),
      required(field(
          "messages",
          MessagesKind(),
          [](auto& fields) -> auto& { return fields.messages; },
          "The conversation to tokenize.")),
      unsupported_field("prompt", "[]", "give either a prompt or messages"),
      field(
          "tools",
          ToolsKind(),
          [](auto& fields) -> auto& { return fields.tools; },
          "As in a chat completion."),
      add_special_tokens_field(
          "Add the tokens that begin a text, besides the template's own; false when left out."),
      field(
          "add_generation_prompt",
          BoolKind(),
          [](auto& fields) -> auto& { return fields.wants_generation_prompt; },
          "As in a chat completion."),
      field(
          "continue_final_message",
          BoolKind(),
          [](auto& fields) -> auto& { return fields.continue_final_message; },
          "As in a chat completion."),
      return_token_strs_field(),
      field(
          "chat_template",
          StringKind(),
          [](auto& fields) -> auto& { return fields.chat_template; },
          "As in a chat completion."),
      field(
          "chat_template_kwargs",
          TemplateArgumentsKind(),
          [](auto& fields) -> auto& { return fields.chat_template_kwargs; },
          "As in a chat completion."),
      unsupported_field("mm_processor_kwargs", "[]", "this model takes text only"),
  });
  return table;
}

const FieldTable& detokenize_table() {
  static const FieldTable table({
      bound_field<DetokenizeRequest>(
          "model",
          StringKind{.max_length = 1024},
          [](auto& request) -> auto& { return request.model; },
          "The model whose tokenizer to use; when left out, the first one served."),
      required(bound_field<DetokenizeRequest>(
          "tokens",
          ListKind<TokenIdKind>{{}, "token ids"},
          [](auto& request) -> auto& { return request.tokens; },
          "The token ids to make a text of.")),
  });
  return table;
}

void add_tokenize_schemas(const OpenApiOptions& options, OrderedJson* schemas) {
  describe_message_components(options, schemas);
  OrderedJson& prompt = (*schemas)["TokenizePromptRequest"] = OrderedJson::object();
  tokenize_prompt_table().describe(options, &prompt);
  OrderedJson& chat = (*schemas)["TokenizeChatRequest"] = OrderedJson::object();
  tokenize_chat_table().describe(options, &chat);
  add_rules(kContinueRule, &chat);
  for (const char* name : {"TokenizePromptRequest", "TokenizeChatRequest"}) {
    OrderedJson reference;
    reference["$ref"] = fmt::format("#/components/schemas/{}", name);
    (*schemas)["TokenizeRequest"]["anyOf"].push_back(std::move(reference));
  }
}

void add_detokenize_schemas(const OpenApiOptions& options, OrderedJson* schemas) {
  OrderedJson& schema = (*schemas)["DetokenizeRequest"] = OrderedJson::object();
  detokenize_table().describe(options, &schema);
}

}  // namespace atom::server
