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
  // What the next request may go on with: the conversation without the instructions.
  SharedJson input;
  std::string previous_response_id;  // whose conversation stands in front of it; empty: none
  bool store = false;                // the conversation and its answer are kept
};

// Puts the messages of an earlier conversation in front of the request's.
void continue_conversation(OrderedJson earlier, ResponsesRequest* request);

Parsed<ResponsesRequest> parse_responses_request(std::string_view body,
                                                 const SamplingParams& defaults,
                                                 const BodyContext& context = {});

// Its schema, for ApiOperation::add_request.
void add_responses_schemas(const OpenApiOptions& options, OrderedJson* schemas);

}  // namespace atom::server
