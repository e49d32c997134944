#include "server/openai/openapi.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "server/openai/message_kinds.h"
#include "server/openai/openapi_schemas.h"
#include "server/openai/request_tables.h"

namespace atom::server {
namespace {

struct Endpoint {
  const char* method;
  const char* path;
  const char* id;
  const char* summary;
  const char* request = "";  // schema of the body; none
  const char* answer = "";   // schema of the answer; none: no JSON
  const char* content_type = "application/json";
  bool streams = false;
  bool profiles = false;  // there only with OpenApiOptions::profiles
};

constexpr Endpoint kEndpoints[] = {
    {"post",
     "/v1/completions",
     "create_completion",
     "Continue a prompt.",
     "CompletionRequest",
     "Completion",
     "application/json",
     true},
    {"post",
     "/v1/chat/completions",
     "create_chat_completion",
     "Answer a conversation.",
     "ChatCompletionRequest",
     "ChatCompletion",
     "application/json",
     true},
    {"get", "/v1/models", "list_models", "The models served.", "", "ModelList"},
    {"get", "/v1/models/{model}", "get_model", "One model served.", "", "Model"},
    {"post",
     "/tokenize",
     "tokenize",
     "The tokens of a text or a conversation.",
     "TokenizeRequest",
     "Tokens"},
    {"post", "/detokenize", "detokenize", "The text of tokens.", "DetokenizeRequest", "Text"},
    {"post",
     "/start_profile",
     "start_profile",
     "Begin to record a profile of the engine's steps; 400 while one is recorded.",
     "",
     "ProfileStarted",
     "application/json",
     false,
     true},
    {"post",
     "/stop_profile",
     "stop_profile",
     "End the profile and write it to a file of --profile-dir; 400 when none is recorded.",
     "",
     "ProfileStopped",
     "application/json",
     false,
     true},
    {"get", "/livez", "get_liveness", "200 while the process lives."},
    {"get", "/readyz", "get_readiness", "200 while requests are taken."},
    {"get", "/health", "get_health", "200 while the engine works."},
    {"get", "/version", "get_version", "The program's version.", "", "Version"},
    {"get", "/metrics", "get_metrics", "Measurements for Prometheus.", "", "", "text/plain"},
    {"get", "/openapi.json", "get_openapi", "This document.", "", "Document"},
};

OrderedJson reference(std::string_view schema) {
  OrderedJson json;
  json["$ref"] = fmt::format("#/components/schemas/{}", schema);
  return json;
}

OrderedJson parse_constant(std::string_view text) {
  OrderedJson json = OrderedJson::parse(text, nullptr, false);
  CHECK(!json.is_discarded());
  return json;
}

// allOf: each of these alternatives holds. They are the rules between fields that the parsers have
// and JSON Schema can say.
constexpr std::string_view kGenerationRules = R"([
  {"anyOf": [{"properties": {"stream": {"const": true}}, "required": ["stream"]},
             {"properties": {"stream_options": {"type": "null"}}}]},
  {"anyOf": [{"properties": {"stream": {"enum": [false, null]}}},
             {"properties": {"prompt_logprobs": {"type": "null"}}}]}
])";
constexpr std::string_view kChatRules = R"([
  {"anyOf": [{"properties": {"logprobs": {"const": true}}, "required": ["logprobs"]},
             {"properties": {"top_logprobs": {"enum": [0, null]}}}]}
])";
constexpr std::string_view kContinueRule = R"([
  {"anyOf": [{"properties": {"continue_final_message": {"enum": [false, null]}}},
             {"properties": {"add_generation_prompt": {"enum": [false, null]}}}]}
])";

void add_rules(std::string_view rules, OrderedJson* schema) {
  for (OrderedJson& rule : parse_constant(rules)) (*schema)["allOf"].push_back(std::move(rule));
}

OrderedJson table_schema(const FieldTable& table, const OpenApiOptions& options) {
  OrderedJson schema = OrderedJson::object();
  table.describe(options, &schema);
  return schema;
}

OrderedJson schemas(const OpenApiOptions& options) {
  OrderedJson all = parse_constant(kAnswerSchemas);
  all["Document"]["type"] = "object";
  describe_message_components(options, &all);

  OrderedJson completion = table_schema(completion_table(), options);
  completion["properties"]["max_tokens"]["default"] = kDefaultCompletionTokens;
  add_rules(kGenerationRules, &completion);
  all["CompletionRequest"] = std::move(completion);

  OrderedJson chat = table_schema(chat_completion_table(), options);
  add_rules(kGenerationRules, &chat);
  add_rules(kChatRules, &chat);
  add_rules(kContinueRule, &chat);
  all["ChatCompletionRequest"] = std::move(chat);

  all["TokenizePromptRequest"] = table_schema(tokenize_prompt_table(), options);
  OrderedJson tokenize_chat = table_schema(tokenize_chat_table(), options);
  add_rules(kContinueRule, &tokenize_chat);
  all["TokenizeChatRequest"] = std::move(tokenize_chat);
  all["TokenizeRequest"]["anyOf"] = {reference("TokenizePromptRequest"),
                                     reference("TokenizeChatRequest")};
  all["DetokenizeRequest"] = table_schema(detokenize_table(), options);
  return all;
}

OrderedJson error_responses() {
  const OrderedJson descriptions = parse_constant(kErrorResponses);
  OrderedJson responses = OrderedJson::object();
  for (auto status = descriptions.begin(); status != descriptions.end(); ++status) {
    OrderedJson& response = responses["Error" + status.key()];
    response["description"] = *status;
    if (status.key() == "429" || status.key() == "503") {
      response["headers"]["Retry-After"] = {{"description", "Seconds to wait."},
                                            {"schema", {{"type", "integer"}}}};
    }
    response["content"]["application/json"]["schema"] = reference("Error");
  }
  return responses;
}

OrderedJson operation(const Endpoint& endpoint, const OrderedJson& errors) {
  OrderedJson json;
  json["operationId"] = endpoint.id;
  json["summary"] = endpoint.summary;
  const std::string_view path = endpoint.path;
  if (path.find("{model}") != std::string_view::npos) {
    OrderedJson parameter = {{"name", "model"},
                             {"in", "path"},
                             {"required", true},
                             {"schema", {{"type", "string"}, {"minLength", 1}}}};
    json["parameters"].push_back(std::move(parameter));
  }
  const std::string_view request = endpoint.request;
  if (!request.empty()) {
    json["requestBody"]["required"] = true;
    json["requestBody"]["content"]["application/json"]["schema"] = reference(request);
  }
  OrderedJson& success = json["responses"]["200"];
  success["description"] = endpoint.streams ? "The answer, whole or as a stream." : "The answer.";
  const std::string_view answer = endpoint.answer;
  if (!answer.empty()) {
    success["content"][endpoint.content_type]["schema"] = reference(answer);
  } else if (std::string_view(endpoint.content_type) != "application/json") {
    success["content"][endpoint.content_type]["schema"]["type"] = "string";
  }
  if (endpoint.streams) {
    success["content"]["text/event-stream"]["schema"] = reference("ServerSentEvent");
  }
  for (auto error = errors.begin(); error != errors.end(); ++error) {
    json["responses"][error.key().substr(std::string_view("Error").size())]["$ref"] =
        "#/components/responses/" + error.key();
  }
  return json;
}

}  // namespace

std::string openapi_json(const OpenApiOptions& options) {
  OrderedJson document;
  document["openapi"] = "3.1.0";
  document["info"] = {{"title", "atom"},
                      {"version", options.version},
                      {"description", "An inference server with the API of OpenAI and vLLM."}};
  const OrderedJson errors = error_responses();
  for (const Endpoint& endpoint : kEndpoints) {
    if (endpoint.profiles && !options.profiles) continue;
    document["paths"][endpoint.path][endpoint.method] = operation(endpoint, errors);
  }
  document["components"]["schemas"] = schemas(options);
  document["components"]["responses"] = errors;
  if (options.needs_api_key) {
    document["components"]["securitySchemes"]["api_key"] = {{"type", "http"}, {"scheme", "bearer"}};
    document["security"] = OrderedJson::array({{{"api_key", OrderedJson::array()}}});
  }
  return document.dump();
}

}  // namespace atom::server
