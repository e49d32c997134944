// POST /detokenize: the text of token ids.
#include <utility>

#include "server/endpoint.h"
#include "server/json_text.h"
#include "server/openai/parse_requests.h"
#include "server/openai/request_tables.h"

namespace atom::server {
namespace {

constexpr std::string_view kDetokenizeAnswerSchemas = R"json(
"Text": {
  "type": "object",
  "required": ["prompt"],
  "properties": {"prompt": {"type": "string"}}
}
)json";

void detokenize(ServerContext* context, const ExchangePtr& exchange) {
  const Parsed<DetokenizeRequest> parsed =
      parse_detokenize_request(exchange->request().body, BodyReader(context).context());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return respond_error(exchange, *error);
  const auto& request = std::get<DetokenizeRequest>(parsed);
  if (!check_model(*context, request.model, exchange)) return;
  const Tokenizer* tokenizer = context->engine.tokenizer().get();
  if (tokenizer == nullptr) {
    return respond_error(exchange, unimplemented("the server runs without a tokenizer"));
  }
  std::string body = "{\"prompt\":";
  append_json_string(&body, tokenizer->decode(request.tokens, /*skip_special_tokens=*/false));
  body.push_back('}');
  respond_json(exchange, std::move(body));
}

}  // namespace

constinit const Endpoint kDetokenize{detokenize,
                                     {.id = "detokenize",
                                      .summary = "The text of tokens.",
                                      .request = "DetokenizeRequest",
                                      .add_request = add_detokenize_schemas,
                                      .answer = "Text",
                                      .answer_schemas = kDetokenizeAnswerSchemas}};

}  // namespace atom::server
