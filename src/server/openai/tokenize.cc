// POST /tokenize: a prompt, or a conversation through the chat template, as token ids.
#include <utility>

#include "server/endpoint.h"
#include "server/json_text.h"
#include "server/openai/parse_requests.h"
#include "server/openai/request_tables.h"
#include "tokenizer/text_model.h"

namespace atom::server {
namespace {

constexpr std::string_view kTokenizeAnswerSchemas = R"json(
"Tokens": {
  "type": "object",
  "required": ["count", "max_model_len", "tokens", "token_strs"],
  "properties": {
    "count": {"type": "integer", "minimum": 0},
    "max_model_len": {"type": "integer", "minimum": 1},
    "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    "token_strs": {"type": ["array", "null"], "items": {"type": "string"}}
  }
}
)json";

Result<std::vector<int32_t>> token_ids(const ServerContext& context,
                                       const TokenizeRequest& request,
                                       const std::atomic<bool>& gone) {
  const Tokenizer* tokenizer = context.engine.tokenizer().get();
  if (tokenizer == nullptr) return unimplemented("the server runs without a tokenizer");
  std::string text;
  if (request.prompt) {
    text = *request.prompt;
  } else if (context.chat != nullptr) {
    ASSIGN_OR_RETURN(text, context.chat->render(request, gone));
  } else {
    return unimplemented("no chat: {}", context.why_no_chat);
  }
  return tokenizer->encode(text, request.add_special_tokens, {.cancelled = &gone});
}

void tokenize(ServerContext* context, const ExchangePtr& exchange) {
  const Parsed<TokenizeRequest> parsed =
      parse_tokenize_request(exchange->request().body, BodyReader(context).context());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return respond_error(exchange, *error);
  const auto& request = std::get<TokenizeRequest>(parsed);
  if (!check_model(*context, request.model, exchange)) return;
  if (!check_chat_template(*context, request.chat_template, exchange)) return;
  const Result<std::vector<int32_t>> ids = token_ids(*context, request, exchange->gone());
  if (!ids.ok()) return respond_error(exchange, to_request_error(ids.status()));
  std::string body = "{\"count\":";
  append_json_integer(&body, static_cast<int64_t>(ids->size()));
  body += ",\"max_model_len\":";
  append_json_integer(&body, context->engine.config().max_model_len());
  body += ",\"tokens\":";
  append_json_integers(&body, *ids);
  body += ",\"token_strs\":";
  if (request.return_token_strs) {
    body.push_back('[');
    for (size_t i = 0; i < ids->size(); ++i) {
      if (i > 0) body.push_back(',');
      append_json_string(&body, context->engine.tokenizer()->id_to_token((*ids)[i]));
    }
    body.push_back(']');
  } else {
    body += "null";
  }
  body.push_back('}');
  respond_json(exchange, std::move(body));
}

}  // namespace

constinit const Endpoint kTokenize{tokenize,
                                   {.id = "tokenize",
                                    .summary = "The tokens of a text or a conversation.",
                                    .request = "TokenizeRequest",
                                    .add_request = add_tokenize_schemas,
                                    .answer = "Tokens",
                                    .answer_schemas = kTokenizeAnswerSchemas}};

}  // namespace atom::server
