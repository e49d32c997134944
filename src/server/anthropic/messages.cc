// POST /v1/messages, /v1/messages/count_tokens: Anthropic's API of conversations.
#include <utility>

#include "server/anthropic/messages_format.h"
#include "server/anthropic/messages_request.h"
#include "server/json_text.h"
#include "server/openai/chat_generation.h"

namespace atom::server {
namespace {

constexpr std::string_view kMessageSchema = R"json(
"MessagesError": {
  "type": "object",
  "required": ["type", "error"],
  "properties": {
    "type": {"const": "error"},
    "error": {
      "type": "object",
      "required": ["type", "message"],
      "properties": {"type": {"type": "string"}, "message": {"type": "string"}}
    }
  }
},
"Message": {
  "type": "object",
  "required": ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"],
  "properties": {
    "id": {"type": "string"},
    "type": {"const": "message"},
    "role": {"const": "assistant"},
    "model": {"type": "string"},
    "content": {"type": "array", "items": {
      "type": "object",
      "required": ["type"],
      "properties": {"type": {"enum": ["text", "thinking", "tool_use"]}}
    }},
    "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use", null]},
    "stop_sequence": {"type": ["string", "null"]},
    "usage": {
      "type": "object",
      "required": ["input_tokens", "output_tokens"],
      "properties": {
        "input_tokens": {"type": "integer", "minimum": 0},
        "cache_creation_input_tokens": {"type": "integer", "minimum": 0},
        "cache_read_input_tokens": {"type": "integer", "minimum": 0},
        "output_tokens": {"type": "integer", "minimum": 0}
      }
    }
  }
}
)json";
constexpr char kErrorName[] = "MessagesError";
constexpr std::string_view kTokenCountSchema = R"json(
"TokenCount": {
  "type": "object",
  "required": ["input_tokens"],
  "properties": {"input_tokens": {"type": "integer", "minimum": 0}}
}
)json";

void messages(ServerContext* context, const ExchangePtr& exchange) {
  Places ticket;
  if (!admit(context, 1, &ticket, exchange)) return;
  Parsed<ChatCompletionRequest> parsed = parse_messages_request(
      exchange->request().body, context->engine.default_sampling(), BodyReader(context).context());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return respond_error(exchange, *error);
  const std::string id = answer_id("msg", *exchange, {});
  const auto make_format = [&](PreparedChat chat, const OutputFormat& output_format) {
    return std::make_unique<MessagesFormat>(id, std::move(chat), output_format);
  };
  start_chat(context,
             std::move(ticket),
             std::get<ChatCompletionRequest>(std::move(parsed)),
             make_format,
             exchange);
}

void count_tokens(ServerContext* context, const ExchangePtr& exchange) {
  Parsed<ChatCompletionRequest> parsed =
      parse_count_tokens_request(exchange->request().body, BodyReader(context).context());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return respond_error(exchange, *error);
  PreparedChat chat;
  chat.request = std::get<ChatCompletionRequest>(std::move(parsed));
  if (!render_chat(context, &chat, exchange)) return;
  std::string body = "{\"input_tokens\":";
  append_json_integer(&body, static_cast<int64_t>(chat.prompt.token_ids.size()));
  body.push_back('}');
  respond_json(exchange, std::move(body));
}

}  // namespace

constinit const Endpoint kMessages{messages,
                                   {.id = "create_message",
                                    .summary = "Answer a conversation, as Anthropic's API has it.",
                                    .request = "MessagesRequest",
                                    .add_request = add_messages_schemas,
                                    .answer = "Message",
                                    .answer_schemas = kMessageSchema,
                                    .streams = true,
                                    .error = kErrorName}};
constinit const Endpoint kCountTokens{count_tokens,
                                      {.id = "count_message_tokens",
                                       .summary = "The tokens that a conversation's prompt has.",
                                       .request = "CountTokensRequest",
                                       .add_request = add_count_tokens_schemas,
                                       .answer = "TokenCount",
                                       .answer_schemas = kTokenCountSchema,
                                       .error = kErrorName}};

}  // namespace atom::server
