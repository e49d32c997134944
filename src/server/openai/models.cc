// GET /v1/models, GET /v1/models/{model}
#include <utility>

#include "server/endpoint.h"
#include "server/json_text.h"

namespace atom::server {
namespace {

constexpr std::string_view kModelsAnswerSchemas = R"json(
"Model": {
  "type": "object",
  "required": ["id", "object", "created", "owned_by"],
  "properties": {
    "id": {"type": "string"},
    "object": {"const": "model"},
    "created": {"type": "integer"},
    "owned_by": {"type": "string"},
    "root": {"type": ["string", "null"]},
    "parent": {"type": ["string", "null"]},
    "max_model_len": {"type": ["integer", "null"]},
    "permission": {"type": "array"}
  }
},
"ModelList": {
  "type": "object",
  "required": ["object", "data"],
  "properties": {
    "object": {"const": "list"},
    "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}
  }
}
)json";

constexpr std::string_view kModelPath = "/v1/models/";

void append_model(const ServerContext& context, std::string_view name, std::string* out) {
  *out += "{\"id\":";
  append_json_string(out, name);
  *out += ",\"object\":\"model\",\"created\":";
  append_json_integer(out, context.created);
  *out += ",\"owned_by\":\"atom\",\"root\":";
  append_json_string(out, context.engine.config().engine.model.model);
  *out += ",\"parent\":null,\"max_model_len\":";
  append_json_integer(out, context.engine.config().max_model_len());
  *out += ",\"permission\":[]}";
}

void list_models(ServerContext* context, const ExchangePtr& exchange) {
  std::string body = "{\"object\":\"list\",\"data\":[";
  bool is_first = true;
  for (const std::string& name : context->options.served_model_names) {
    if (!std::exchange(is_first, false)) body.push_back(',');
    append_model(*context, name, &body);
  }
  body += "]}";
  respond_json(exchange, std::move(body));
}

void retrieve_model(ServerContext* context, const ExchangePtr& exchange) {
  const std::string name(route_path(*context, exchange->request()).substr(kModelPath.size()));
  if (!check_model(*context, name, exchange)) return;
  std::string body;
  append_model(*context, name, &body);
  respond_json(exchange, std::move(body));
}

}  // namespace

constinit const Endpoint kListModels{list_models,
                                     {.id = "list_models",
                                      .summary = "The models served.",
                                      .answer = "ModelList",
                                      .answer_schemas = kModelsAnswerSchemas}};
constinit const Endpoint kRetrieveModel{
    retrieve_model, {.id = "get_model", .summary = "One model served.", .answer = "Model"}};

}  // namespace atom::server
