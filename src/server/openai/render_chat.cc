// POST /v1/chat/completions/render: the prompt that a chat completion would have.
#include <utility>

#include "server/json_text.h"
#include "server/openai/chat_generation.h"
#include "server/openai/parse_requests.h"
#include "server/openai/request_tables.h"

namespace atom::server {
namespace {

constexpr std::string_view kRenderChatAnswerSchemas = R"json(
"RenderedChat": {
  "type": "object",
  "required": ["prompt", "prompt_token_ids", "count", "max_model_len"],
  "properties": {
    "prompt": {"type": "string"},
    "prompt_token_ids": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    "count": {"type": "integer", "minimum": 0},
    "max_model_len": {"type": "integer", "minimum": 1}
  }
}
)json";

void render(ServerContext* context, const ExchangePtr& exchange) {
  Parsed<ChatCompletionRequest> parsed = parse_chat_completion_request(
      exchange->request().body, context->engine.default_sampling(), BodyReader(context).context());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return respond_error(exchange, *error);
  PreparedChat chat;
  chat.request = std::get<ChatCompletionRequest>(std::move(parsed));
  if (!render_chat(context, &chat, exchange)) return;
  std::string body = "{\"prompt\":";
  append_json_string(&body, chat.prompt.text);
  body += ",\"prompt_token_ids\":";
  append_json_integers(&body, chat.prompt.token_ids);
  body += ",\"count\":";
  append_json_integer(&body, static_cast<int64_t>(chat.prompt.token_ids.size()));
  body += ",\"max_model_len\":";
  append_json_integer(&body, context->engine.config().max_model_len());
  body.push_back('}');
  respond_json(exchange, std::move(body));
}

}  // namespace

constinit const Endpoint kRenderChat{render,
                                     {.id = "render_chat",
                                      .summary = "The prompt of a conversation.",
                                      .request = "ChatCompletionRequest",
                                      .add_request = add_chat_completion_schemas,
                                      .answer = "RenderedChat",
                                      .answer_schemas = kRenderChatAnswerSchemas}};

}  // namespace atom::server
