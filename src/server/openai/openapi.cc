#include "server/openai/openapi.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "server/openai/openapi_schemas.h"

namespace atom::server {
namespace {

constexpr size_t kStatusDigits = 3;

OrderedJson reference(std::string_view schema) {
  OrderedJson json;
  json["$ref"] = fmt::format("#/components/schemas/{}", schema);
  return json;
}

void add_schemas(std::string_view members, OrderedJson* schemas) {
  schemas->update(json_literal(fmt::format("{{{}}}", members)));
}

OrderedJson schemas(const OpenApiOptions& options, std::span<const ApiRoute> routes) {
  OrderedJson all = OrderedJson::object();
  add_schemas(kCommonSchemas, &all);
  for (const ApiRoute& route : routes) {
    add_schemas(route.operation->answer_schemas, &all);
    if (route.operation->add_request != nullptr) route.operation->add_request(options, &all);
  }
  return all;
}

// Adds the errors with one schema, as "<schema><status>".
void add_error_responses(const char* schema, OrderedJson* all) {
  const OrderedJson descriptions = json_literal(kErrorResponses);
  for (auto status = descriptions.begin(); status != descriptions.end(); ++status) {
    OrderedJson& response = (*all)[schema + status.key()];
    response["description"] = *status;
    if (status.key() == "429" || status.key() == "503") {
      response["headers"]["Retry-After"] = {{"description", "Seconds to wait."},
                                            {"schema", {{"type", "integer"}}}};
    }
    response["content"]["application/json"]["schema"] = reference(schema);
  }
}

OrderedJson error_responses(std::span<const ApiRoute> routes) {
  OrderedJson all = OrderedJson::object();
  for (const ApiRoute& route : routes) add_error_responses(route.operation->error, &all);
  return all;
}

std::string lower_case(std::string_view method) {
  std::string text(method);
  for (char& c : text) c = static_cast<char>(c - 'A' + 'a');
  return text;
}

OrderedJson describe_operation(const ApiRoute& route, const OrderedJson& errors) {
  const ApiOperation& operation = *route.operation;
  OrderedJson json;
  json["operationId"] = operation.id;
  json["summary"] = operation.summary;
  if (route.path.find("{model}") != std::string_view::npos) {
    OrderedJson parameter = {{"name", "model"},
                             {"in", "path"},
                             {"required", true},
                             {"schema", {{"type", "string"}, {"minLength", 1}}}};
    json["parameters"].push_back(std::move(parameter));
  }
  const std::string_view request = operation.request;
  if (!request.empty()) {
    json["requestBody"]["required"] = true;
    json["requestBody"]["content"]["application/json"]["schema"] = reference(request);
  }
  OrderedJson& success = json["responses"]["200"];
  success["description"] = operation.streams ? "The answer, whole or as a stream." : "The answer.";
  const std::string_view answer = operation.answer;
  if (!answer.empty()) {
    success["content"][operation.content_type]["schema"] = reference(answer);
  } else if (std::string_view(operation.content_type) != "application/json") {
    success["content"][operation.content_type]["schema"]["type"] = "string";
  }
  if (operation.streams) {
    success["content"]["text/event-stream"]["schema"] = reference("ServerSentEvent");
  }
  const std::string_view schema = operation.error;
  for (auto error = errors.begin(); error != errors.end(); ++error) {
    const std::string_view name = error.key();
    if (name.size() != schema.size() + kStatusDigits || !name.starts_with(schema)) continue;
    json["responses"][error.key().substr(schema.size())]["$ref"] =
        "#/components/responses/" + error.key();
  }
  return json;
}

}  // namespace

void add_rules(std::string_view rules, OrderedJson* schema) {
  for (OrderedJson& rule : json_literal(rules)) (*schema)["allOf"].push_back(std::move(rule));
}

std::string openapi_json(const OpenApiOptions& options, std::span<const ApiRoute> routes) {
  OrderedJson document;
  document["openapi"] = "3.1.0";
  document["info"] = {{"title", "atom"},
                      {"version", options.version},
                      {"description", "An inference server with the API of OpenAI and vLLM."}};
  if (!options.root_path.empty()) document["servers"].push_back({{"url", options.root_path}});
  const OrderedJson errors = error_responses(routes);
  for (const ApiRoute& route : routes) {
    document["paths"][std::string(route.path)][lower_case(route.method)] =
        describe_operation(route, errors);
  }
  document["components"]["schemas"] = schemas(options, routes);
  document["components"]["responses"] = errors;
  if (options.needs_api_key) {
    document["components"]["securitySchemes"]["api_key"] = {{"type", "http"}, {"scheme", "bearer"}};
    document["security"] = OrderedJson::array({{{"api_key", OrderedJson::array()}}});
  }
  return json_text(document);
}

}  // namespace atom::server
