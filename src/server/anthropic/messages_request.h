// Bodies of Anthropic's Messages API -> conversations as chat completions have them: what is behind
// this knows one kind of conversation. As parse_requests.h: bounded, total, errors name the field.
#pragma once

#include <string_view>

#include "server/openai/openapi.h"
#include "server/openai/parse_requests.h"

namespace atom::server {

// A request to /v1/messages.
Parsed<ChatCompletionRequest> parse_messages_request(std::string_view body,
                                                     const SamplingParams& defaults,
                                                     const BodyContext& context = {});
// A request to /v1/messages/count_tokens: without a limit of the answer.
Parsed<ChatCompletionRequest> parse_count_tokens_request(std::string_view body,
                                                         const BodyContext& context = {});

// Their schemas, for ApiOperation::add_request.
void add_messages_schemas(const OpenApiOptions& options, OrderedJson* schemas);
void add_count_tokens_schemas(const OpenApiOptions& options, OrderedJson* schemas);

}  // namespace atom::server
