// Bodies of OpenAI's Responses API -> conversations as chat completions have them. As
// parse_requests.h: bounded, total, errors name the field.
#pragma once

#include <string>
#include <string_view>

#include "server/openai/openapi.h"
#include "server/openai/parse_requests.h"

namespace atom::server {

struct ResponsesRequest {
  ChatCompletionRequest chat;
  // What the answer repeats.
  std::string instructions;
  std::string effort;
  SharedJson tools;     // as given; null: none
  SharedJson metadata;  // object; null: none
};

Parsed<ResponsesRequest> parse_responses_request(std::string_view body,
                                                 const SamplingParams& defaults,
                                                 const BodyContext& context = {});

// Its schema, for ApiOperation::add_request.
void add_responses_schemas(const OpenApiOptions& options, OrderedJson* schemas);

}  // namespace atom::server
