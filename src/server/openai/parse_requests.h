// JSON bodies -> typed requests. Bounded and total: any bytes give a request or an error that names
// the field, what it holds and what it may hold. Fields that OpenAI or vLLM have and atom has not
// are refused by name unless they ask for what atom does anyway (null, or the neutral value). What
// nobody knows is collected in the context's `unknown`, or refused with the nearest known name.
// null is "not given". Thread-safe.
#pragma once

#include <string_view>
#include <variant>

#include "server/openai/api_error.h"
#include "server/openai/field_error.h"
#include "server/openai/requests.h"

namespace atom::server {

template <typename T>
using Parsed = std::variant<T, ApiError>;

// `defaults`: what a request that leaves a sampling field out gets. max_tokens is the exception:
// 16 in a completion, as in OpenAI's API, and what the context allows in a chat.
Parsed<CompletionRequest> parse_completion_request(std::string_view body,
                                                   const SamplingParams& defaults,
                                                   const BodyContext& context = {});
Parsed<ChatCompletionRequest> parse_chat_completion_request(std::string_view body,
                                                            const SamplingParams& defaults,
                                                            const BodyContext& context = {});
Parsed<TokenizeRequest> parse_tokenize_request(std::string_view body,
                                               const BodyContext& context = {});
Parsed<DetokenizeRequest> parse_detokenize_request(std::string_view body,
                                                   const BodyContext& context = {});

}  // namespace atom::server
