// POST /v1/chat/completions
#include <ctime>
#include <functional>
#include <utility>

#include "server/openai/chat_completion_format.h"
#include "server/openai/chat_generation.h"
#include "server/openai/parse_requests.h"
#include "server/openai/request_tables.h"

namespace atom::server {
namespace {

constexpr std::string_view kChatCompletionsAnswerSchemas = R"json(
"TokenLogprob": {
  "type": "object",
  "required": ["token", "logprob", "bytes"],
  "properties": {
    "token": {"type": "string"},
    "logprob": {"type": "number"},
    "bytes": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0, "maximum": 255}}
  }
},
"ChatLogprobs": {
  "type": "object",
  "required": ["content"],
  "properties": {"content": {"type": ["array", "null"], "items": {
    "allOf": [{"$ref": "#/components/schemas/TokenLogprob"}],
    "required": ["top_logprobs"],
    "properties": {
      "top_logprobs": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}
    }
  }}}
},
"ToolCall": {
  "type": "object",
  "required": ["id", "type", "function"],
  "properties": {
    "id": {"type": "string"},
    "type": {"const": "function"},
    "function": {
      "type": "object",
      "required": ["name", "arguments"],
      "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}}
    }
  }
},
"ChatAnswer": {
  "type": "object",
  "required": ["role", "content"],
  "properties": {
    "role": {"type": "string"},
    "content": {"type": ["string", "null"]},
    "refusal": {"type": "null"},
    "reasoning": {"type": ["string", "null"]},
    "reasoning_content": {"type": ["string", "null"]},
    "tool_calls": {"type": "array", "items": {"$ref": "#/components/schemas/ToolCall"}}
  }
},
"ChatChoice": {
  "type": "object",
  "required": ["index", "message", "logprobs", "finish_reason"],
  "properties": {
    "index": {"type": "integer", "minimum": 0},
    "message": {"$ref": "#/components/schemas/ChatAnswer"},
    "logprobs": {"anyOf": [{"$ref": "#/components/schemas/ChatLogprobs"}, {"type": "null"}]},
    "finish_reason": {"enum": ["stop", "length", "tool_calls", "abort", null]},
    "stop_reason": {"$ref": "#/components/schemas/StopReason"},
    "token_ids": {"$ref": "#/components/schemas/TokenIds"}
  }
},
"ChatCompletion": {
  "type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {
    "id": {"type": "string"},
    "object": {"const": "chat.completion"},
    "system_fingerprint": {"type": "string"},
    "created": {"type": "integer"},
    "model": {"type": "string"},
    "choices": {"type": "array", "items": {"$ref": "#/components/schemas/ChatChoice"}},
    "usage": {"$ref": "#/components/schemas/Usage"},
    "prompt_logprobs": {"$ref": "#/components/schemas/PromptLogprobs"},
    "prompt_token_ids": {"$ref": "#/components/schemas/TokenIds"}
  }
}
)json";

void chat_completions(ServerContext* context, const ExchangePtr& exchange) {
  Places ticket;
  if (!admit(context, 1, &ticket, exchange)) return;
  Parsed<ChatCompletionRequest> parsed = parse_chat_completion_request(
      exchange->request().body, context->engine.default_sampling(), BodyReader(context).context());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return respond_error(exchange, *error);
  auto& request = std::get<ChatCompletionRequest>(parsed);
  const std::string id = answer_id("chatcmpl", *exchange, request.request_id);
  const auto make_format = [&](PreparedChat chat, const OutputFormat& output_format) {
    return std::make_unique<ChatCompletionFormat>(id,
                                                  std::time(nullptr),
                                                  context->system_fingerprint,
                                                  std::move(chat),
                                                  output_format,
                                                  std::hash<std::string>()(id));
  };
  start_chat(context, std::move(ticket), std::move(request), make_format, exchange);
}

}  // namespace

constinit const Endpoint kChatCompletions{chat_completions,
                                          {.id = "create_chat_completion",
                                           .summary = "Answer a conversation.",
                                           .request = "ChatCompletionRequest",
                                           .add_request = add_chat_completion_schemas,
                                           .answer = "ChatCompletion",
                                           .answer_schemas = kChatCompletionsAnswerSchemas,
                                           .streams = true}};

}  // namespace atom::server
