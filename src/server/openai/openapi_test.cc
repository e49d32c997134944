#include "server/openai/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/openai/field_error.h"
#include "server/openai/parse_requests.h"
#include "server/openai/request_kinds.h"
#include "server/openai/request_tables.h"
#include "server/openai/schema_sampler.h"

namespace atom::server {
namespace {

constexpr ApiOperation kCompletion{.id = "create_completion",
                                   .summary = "Continue a prompt.",
                                   .request = "CompletionRequest",
                                   .add_request = add_completion_schemas,
                                   .answer = "Completion",
                                   .answer_schemas = R"("Completion": {"type": "object"})",
                                   .streams = true};
constexpr ApiOperation kChat{.id = "create_chat_completion",
                             .summary = "Answer a conversation.",
                             .add_request = add_chat_completion_schemas};
constexpr ApiOperation kTokenize{
    .id = "tokenize", .summary = "The tokens of a text.", .add_request = add_tokenize_schemas};
constexpr ApiOperation kDetokenize{.id = "detokenize",
                                   .summary = "The text of tokens.",
                                   .add_request = add_detokenize_schemas,
                                   .content_type = "text/plain"};
constexpr ApiRoute kRoutes[] = {{"POST", "/v1/completions", &kCompletion},
                                {"POST", "/v1/chat/completions", &kChat},
                                {"POST", "/tokenize", &kTokenize},
                                {"GET", "/of/{model}", &kDetokenize}};

OrderedJson document(int64_t vocab_size = 0) {
  OpenApiOptions options;
  options.version = "1.2.3";
  options.defaults.top_p = 0.95f;
  options.vocab_size = vocab_size;
  options.strict_fields = true;
  return OrderedJson::parse(openapi_json(options, kRoutes));
}

void check_references(const OrderedJson& json, const OrderedJson& root) {
  if (json.is_object() && json.contains("$ref")) {
    const std::string reference = json["$ref"];
    ASSERT_TRUE(reference.starts_with("#/components/")) << reference;
    EXPECT_TRUE(root.contains(OrderedJson::json_pointer(reference.substr(1)))) << reference;
  }
  if (!json.is_structured()) return;
  for (const OrderedJson& child : json) check_references(child, root);
}

TEST(OpenApi, SaysWhatTheRoutesSay) {
  const OrderedJson json = document();
  EXPECT_EQ(json["openapi"], "3.1.0");
  EXPECT_EQ(json["info"]["version"], "1.2.3");
  check_references(json, json);
  EXPECT_EQ(json["paths"].size(), std::size(kRoutes));
  const OrderedJson& completion = json["paths"]["/v1/completions"]["post"];
  EXPECT_EQ(completion["operationId"], "create_completion");
  EXPECT_EQ(completion["summary"], "Continue a prompt.");
  EXPECT_EQ(completion["requestBody"]["content"]["application/json"]["schema"].dump(),
            R"({"$ref":"#/components/schemas/CompletionRequest"})");
  const OrderedJson& streamed = completion["responses"]["200"]["content"];
  EXPECT_EQ(streamed["application/json"]["schema"].dump(),
            R"({"$ref":"#/components/schemas/Completion"})");
  ASSERT_TRUE(streamed.contains("text/event-stream"));
  const OrderedJson& events = streamed["text/event-stream"]["schema"];
  SchemaSampler sampler(&json, 1);
  EXPECT_TRUE(sampler.fits({{"data", "[DONE]"}, {"event", "message"}}, events));
  EXPECT_FALSE(sampler.fits("[DONE]", events));
  EXPECT_FALSE(sampler.fits({{"event", "message"}}, events));

  const OrderedJson& of_model = json["paths"]["/of/{model}"]["get"];
  EXPECT_FALSE(of_model.contains("requestBody"));
  EXPECT_EQ(of_model["parameters"][0]["name"], "model");
  EXPECT_EQ(of_model["responses"]["200"]["content"].dump(),
            R"({"text/plain":{"schema":{"type":"string"}}})");
  for (const char* status : {"400", "401", "404", "405", "408", "413", "429", "500", "503"}) {
    EXPECT_TRUE(of_model["responses"].contains(status)) << status;
  }
}

TEST(OpenApi, HasASecuritySchemeOnlyWithAKey) {
  EXPECT_FALSE(document().contains("security"));
  OpenApiOptions options;
  options.needs_api_key = true;
  const OrderedJson json = OrderedJson::parse(openapi_json(options, kRoutes));
  EXPECT_EQ(json["security"].dump(), R"([{"api_key":[]}])");
  EXPECT_EQ(json["components"]["securitySchemes"]["api_key"]["scheme"], "bearer");
}

TEST(OpenApi, EveryFieldOfTheTablesIsThereWithItsRangeDefaultAndDescription) {
  const OrderedJson schemas = document(1000)["components"]["schemas"];
  const std::pair<const char*, const FieldTable*> tables[] = {
      {"CompletionRequest", &completion_table()},
      {"ChatCompletionRequest", &chat_completion_table()},
      {"TokenizePromptRequest", &tokenize_prompt_table()},
      {"TokenizeChatRequest", &tokenize_chat_table()},
      {"DetokenizeRequest", &detokenize_table()}};
  for (const auto& [name, table] : tables) {
    const OrderedJson& properties = schemas[name]["properties"];
    EXPECT_EQ(properties.size(), table->fields().size());
    for (const FieldSpec& field : table->fields()) {
      ASSERT_TRUE(properties.contains(field.name)) << name << " " << field.name;
      EXPECT_NE(properties[field.name].value("description", ""), "") << name << " " << field.name;
    }
    EXPECT_EQ(schemas[name]["additionalProperties"], false);
  }
  const OrderedJson& completion = schemas["CompletionRequest"]["properties"];
  EXPECT_EQ(completion["n"].dump(),
            R"({"type":["integer","null"],"minimum":1,"maximum":128,)"
            R"("default":1,"description":"Answers per prompt."})");
  EXPECT_EQ(completion["top_p"]["exclusiveMinimum"], 0);
  EXPECT_EQ(completion["top_p"]["default"].dump(), "0.95");
  EXPECT_EQ(completion["max_tokens"]["default"], 16);
  EXPECT_EQ(completion["suffix"]["type"], "null");
  EXPECT_EQ(completion["stop_token_ids"]["items"]["maximum"], 999);
  EXPECT_EQ(schemas["CompletionRequest"]["required"].dump(), R"(["prompt"])");
}

TEST(OpenApi, OtherFieldsAreAllowedUnlessFieldsAreStrict) {
  const OrderedJson json = OrderedJson::parse(openapi_json(OpenApiOptions(), kRoutes));
  for (const char* name : {"CompletionRequest", "UserMessage", "Tool"}) {
    EXPECT_FALSE(json["components"]["schemas"][name].contains("additionalProperties")) << name;
    EXPECT_EQ(document()["components"]["schemas"][name]["additionalProperties"], false) << name;
  }
}

TEST(OpenApi, ThePatternOfTokenIdsIsExact) {
  for (const int64_t max : {int64_t{0},
                            int64_t{7},
                            int64_t{9},
                            int64_t{10},
                            int64_t{99},
                            int64_t{100},
                            int64_t{1034},
                            int64_t{2000}}) {
    const std::regex pattern(decimal_pattern(max));
    for (int64_t id = 0; id < 3000; ++id) {
      EXPECT_EQ(std::regex_search(std::to_string(id), pattern), id <= max) << id << " " << max;
    }
    for (const char* text : {"", "-1", "01", "00", "+1", " 1", "1x", "1.0"}) {
      EXPECT_FALSE(std::regex_search(text, pattern)) << text << " " << max;
    }
  }
  const std::regex pattern(decimal_pattern(INT32_MAX));
  EXPECT_TRUE(std::regex_search("2147483647", pattern));
  EXPECT_FALSE(std::regex_search("2147483648", pattern));
  EXPECT_FALSE(std::regex_search("9999999999", pattern));
  EXPECT_FALSE(std::regex_search("10000000000", pattern));
}

template <typename T>
const ApiError* error_of(const Parsed<T>& parsed) {
  return std::get_if<ApiError>(&parsed);
}

// The parser takes a body exactly when the schema does, but for the rules that no schema can say.
template <typename Parse>
void expect_agreement(const char* schema_name, const Parse& parse) {
  constexpr int kNumBodies = 3000;
  const OrderedJson root = document();
  const OrderedJson& schema = root["components"]["schemas"][schema_name];
  SchemaSampler sampler(&root, 1);
  int num_accepted = 0;
  int num_refused = 0;
  for (int i = 0; i < kNumBodies; ++i) {
    OrderedJson body;
    sampler.draw(schema, &body);
    for (int spoilt = 0; spoilt < 3; ++spoilt) {
      if (spoilt > 0) sampler.spoil(&body);
      const bool fits = sampler.fits(body, schema);
      const std::string text = body.dump();
      const auto parsed = parse(text);
      const ApiError* error = error_of(parsed);
      ++(error == nullptr ? num_accepted : num_refused);
      if (fits && error != nullptr) {
        const bool is_beyond_schemas = error->code == kConflictingFields &&
                                       (error->param == "min_tokens" || error->param == "best_of");
        EXPECT_TRUE(is_beyond_schemas) << text << "\n" << error->message;
      }
      EXPECT_TRUE(fits || error != nullptr) << "accepted: " << text;
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(num_accepted, kNumBodies / 10);
  EXPECT_GT(num_refused, kNumBodies / 2);
}

TEST(OpenApi, AgreesWithTheParserOfCompletions) {
  expect_agreement("CompletionRequest",
                   [](const std::string& body) { return parse_completion_request(body, {}); });
}

TEST(OpenApi, AgreesWithTheParserOfChatCompletions) {
  expect_agreement("ChatCompletionRequest",
                   [](const std::string& body) { return parse_chat_completion_request(body, {}); });
}

TEST(OpenApi, AgreesWithTheParserOfTokenize) {
  expect_agreement("TokenizeRequest",
                   [](const std::string& body) { return parse_tokenize_request(body); });
}

TEST(OpenApi, AgreesWithTheParserOfDetokenize) {
  expect_agreement("DetokenizeRequest",
                   [](const std::string& body) { return parse_detokenize_request(body); });
}

}  // namespace
}  // namespace atom::server
