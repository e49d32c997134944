// The tables of the request bodies, and what their fields are read into: the request, and what the
// rules between fields need to know besides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "server/openai/field_table.h"
#include "server/openai/requests.h"

namespace atom::server {

struct GenerationExtras {
  std::optional<int32_t> max_tokens;
  std::optional<StreamOptions> given_stream_options;
};

struct CompletionFields : CompletionRequest, GenerationExtras {};

struct ChatCompletionFields : ChatCompletionRequest, GenerationExtras {
  std::optional<int32_t> max_completion_tokens;
  std::optional<bool> wants_generation_prompt;
  std::string reasoning_effort;
  std::optional<int32_t> thinking_token_budget;  // -1: no limit
  std::string safety_identifier;
  std::string ignored_text;
};

struct TokenizeFields : TokenizeRequest {
  std::optional<bool> wants_generation_prompt;
};

const FieldTable& completion_table();
const FieldTable& chat_completion_table();
const FieldTable& tokenize_prompt_table();  // of TokenizeFields
const FieldTable& tokenize_chat_table();    // of TokenizeFields
const FieldTable& detokenize_table();       // of DetokenizeRequest

// Their schemas, for ApiOperation::add_request.
void add_completion_schemas(const OpenApiOptions& options, OrderedJson* schemas);
void add_chat_completion_schemas(const OpenApiOptions& options, OrderedJson* schemas);
void add_tokenize_schemas(const OpenApiOptions& options, OrderedJson* schemas);
void add_detokenize_schemas(const OpenApiOptions& options, OrderedJson* schemas);

// max_tokens of a completion that has none, in OpenAI and vLLM, too.
inline constexpr int32_t kDefaultCompletionTokens = 16;

// Parts of the two generation tables.
const FieldTable& stream_options_table();

// Rules between fields (add_rules): of all generation, and of what renders a conversation.
inline constexpr std::string_view kGenerationRules = R"([
  {"anyOf": [{"properties": {"stream": {"const": true}}, "required": ["stream"]},
             {"properties": {"stream_options": {"type": "null"}}}]},
  {"anyOf": [{"properties": {"stream": {"enum": [false, null]}}},
             {"properties": {"prompt_logprobs": {"type": "null"}}}]}
])";
inline constexpr std::string_view kContinueRule = R"([
  {"anyOf": [{"properties": {"continue_final_message": {"enum": [false, null]}}},
             {"properties": {"add_generation_prompt": {"enum": [false, null]}}}]}
])";

}  // namespace atom::server
