// POST /v1/responses
#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json_text.h"
#include "server/openai/chat_generation.h"
#include "server/openai/response_items.h"
#include "server/openai/responses_format.h"
#include "server/openai/responses_request.h"

namespace atom::server {
namespace {

constexpr std::string_view kResponsesAnswerSchemas = R"json(
"Response": {
  "type": "object",
  "required": ["id", "object", "created_at", "status", "model", "output", "usage"],
  "properties": {
    "id": {"type": "string"},
    "object": {"const": "response"},
    "created_at": {"type": "integer"},
    "status": {"enum": ["completed", "incomplete", "failed", "in_progress"]},
    "model": {"type": "string"},
    "output": {"type": "array", "items": {
      "type": "object",
      "required": ["type", "id"],
      "properties": {"type": {"enum": ["reasoning", "message", "function_call"]}}
    }},
    "usage": {
      "type": ["object", "null"],
      "required": ["input_tokens", "output_tokens", "total_tokens"],
      "properties": {
        "input_tokens": {"type": "integer", "minimum": 0},
        "output_tokens": {"type": "integer", "minimum": 0},
        "total_tokens": {"type": "integer", "minimum": 0}
      }
    }
  }
}
)json";

// Answers 404 and returns false when the conversation that the request continues is not there.
bool find_earlier(ServerContext* context, ResponsesRequest* request, const ExchangePtr& exchange) {
  if (request->previous_response_id.empty()) return true;
  const std::optional<std::string> earlier =
      context->responses.get(request->previous_response_id, *exchange->caller());
  if (!earlier) {
    respond_error(exchange,
                  ApiError{.http_status = 404,
                           .message = fmt::format("there is no response '{}': it is unknown or "
                                                  "was dropped, send the conversation",
                                                  request->previous_response_id),
                           .param = "previous_response_id",
                           .code = "previous_response_not_found"});
    return false;
  }
  continue_conversation(OrderedJson::parse(*earlier), request);
  return true;
}

// Puts the conversation into the store with its answer.
ResponsesFormat::Keep keep_as(ServerContext* context,
                              const std::string& id,
                              const ResponsesRequest& request,
                              const ExchangePtr& exchange) {
  if (!request.store) return nullptr;
  return
      [context, id, input = request.input, caller = exchange->caller()](const OrderedJson& items) {
        OrderedJson messages = *input;
        append_items(items, &messages);
        context->responses.put(id, *caller, json_text(messages));
      };
}

void responses(ServerContext* context, const ExchangePtr& exchange) {
  Places ticket;
  if (!admit(context, 1, &ticket, exchange)) return;
  Parsed<ResponsesRequest> parsed = parse_responses_request(
      exchange->request().body, context->engine.default_sampling(), BodyReader(context).context());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return respond_error(exchange, *error);
  auto& request = std::get<ResponsesRequest>(parsed);
  if (!find_earlier(context, &request, exchange)) return;
  ChatCompletionRequest chat_request = std::move(request.chat);
  const std::string id = "resp_" + exchange->request().id;
  auto keep = keep_as(context, id, request, exchange);
  const auto make_format = [&](PreparedChat chat, const OutputFormat& output_format) {
    return std::make_unique<ResponsesFormat>(id,
                                             std::time(nullptr),
                                             std::move(request),
                                             std::move(chat),
                                             output_format,
                                             std::move(keep));
  };
  start_chat(context, std::move(ticket), std::move(chat_request), make_format, exchange);
}

}  // namespace

constinit const Endpoint kResponses{
    responses,
    {.id = "create_response",
     .summary = "Answer a conversation, as the Responses API has it.",
     .request = "ResponsesRequest",
     .add_request = add_responses_schemas,
     .answer = "Response",
     .answer_schemas = kResponsesAnswerSchemas,
     .streams = true}};

}  // namespace atom::server
