// POST /v1/chat/completions
#include <ctime>
#include <functional>
#include <utility>

#include "server/endpoint.h"
#include "server/openai/chat_completion_format.h"
#include "server/openai/generation.h"
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
  GenerationPlan plan;
  if (!admit(context, 1, &plan.ticket, exchange)) return;
  Parsed<ChatCompletionRequest> parsed =
      parse_chat_completion_request(exchange->request().body, context->engine.default_sampling());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return respond_error(exchange, *error);
  auto& request = std::get<ChatCompletionRequest>(parsed);
  if (!check_model(*context, request.model, exchange)) return;
  if (!check_chat_template(*context, request.chat_template, exchange)) return;
  if (context->chat == nullptr) {
    return respond_error(exchange, unimplemented("no chat: {}", context->why_no_chat));
  }
  if (!admit(context, request.sampling.n, &plan.ticket, exchange)) return;
  // The template writes the special tokens itself, unless the request says otherwise.
  const Result<std::string> text = context->chat->render(request, exchange->gone());
  if (!text.ok()) return respond_error(exchange, to_request_error(text.status()));
  std::vector<int32_t> ids;
  if (!tokenize_prompt(*context, *text, request.add_special_tokens, "messages", &ids, exchange)) {
    return;
  }
  const std::optional<int32_t> max_tokens =
      request.has_max_tokens ? std::optional(request.sampling.max_tokens) : std::nullopt;
  if (!check_length(*context, ids.size(), max_tokens, "messages", exchange)) return;

  const OutputFormat& output_format = context->chat->output_format();
  plan.sampling = request.sampling;
  plan.sampling.kept_special_token_ids =
      context->chat->kept_special_token_ids(request.usable_tools() != nullptr);
  plan.stream = request.stream;
  plan.stream_options = request.stream_options;
  plan.prompts.push_back(ids);
  const std::string id = answer_id("chatcmpl", *exchange, request.request_id);
  const std::string model = request.model.empty() ? context->model_name() : request.model;
  plan.format = std::make_unique<ChatCompletionFormat>(id,
                                                       std::time(nullptr),
                                                       model,
                                                       std::move(request),
                                                       *text,
                                                       std::move(ids),
                                                       output_format,
                                                       context->engine.tokenizer().get(),
                                                       std::hash<std::string>()(id));
  Generation::start(context, exchange, std::move(plan));
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
