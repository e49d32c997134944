// The OpenAPI 3.1 document, made of what each route says of itself. The schemas of request bodies
// come from the tables that the parsers use, so that a body fits its schema exactly when the parser
// takes it (but for the few rules between fields that JSON Schema cannot say: they are in the
// descriptions).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "config/sampling_params.h"

namespace atom::server {

struct OpenApiOptions {
  std::string version;      // of the program
  SamplingParams defaults;  // as the parsers get them
  int64_t vocab_size = 0;   // bounds token ids; 0: any int32
  std::string root_path;    // in front of all paths; or empty
  bool needs_api_key = false;
  bool strict_fields = false;    // bodies have no fields besides
  bool keeps_responses = false;  // see BodyContext
};

// What the document says of an endpoint. All texts are static.
struct ApiOperation {
  const char* id;
  const char* summary;
  const char* request = "";  // name of the body's schema; empty: there is no body
  // Adds that schema, and those that it refers to, to the schemas of the document.
  void (*add_request)(const OpenApiOptions& options, OrderedJson* schemas) = nullptr;
  const char* answer = "";  // name of the answer's schema; empty: it is not JSON
  // The members of a JSON object that defines it and those that only it refers to.
  std::string_view answer_schemas = {};
  const char* content_type = "application/json";
  bool streams = false;  // the answer may be server-sent events
};

struct ApiRoute {
  std::string_view method;  // "GET"
  std::string_view path;    // "/v1/models/{model}"
  const ApiOperation* operation;
};

std::string openapi_json(const OpenApiOptions& options, std::span<const ApiRoute> routes);

// Adds alternatives that all have to hold, a JSON list, to the schema of a body: the rules between
// fields that JSON Schema can say.
void add_rules(std::string_view rules, OrderedJson* schema);

}  // namespace atom::server
