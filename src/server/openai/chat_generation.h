// What every API of conversations does: the model, the chat template, the limits, and the engine.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/chat_format.h"
#include "server/endpoint.h"
#include "server/openai/answer_format.h"
#include "server/openai/generation.h"
#include "server/openai/requests.h"

namespace atom::server {

struct ChatPrompt {
  std::string text;
  std::vector<int32_t> token_ids;
};

// A conversation that may be answered.
struct PreparedChat {
  ChatCompletionRequest request;
  ChatPrompt prompt;
  std::string model;                           // as the answer names it
  std::shared_ptr<const Tokenizer> tokenizer;  // of the prompt and the answer
};

// Renders the prompt of `chat`, whose request is set. Answers the exchange and returns false when
// that is not possible.
bool render_chat(ServerContext* context, PreparedChat* chat, const ExchangePtr& exchange);

// Makes the format of the answers. `output_format` outlives it.
using MakeAnswerFormat = std::function<std::unique_ptr<AnswerFormat>(
    PreparedChat chat, const OutputFormat& output_format)>;

// Renders the request, checks that it fits and gives it to the engine. `ticket` has one place.
void start_chat(ServerContext* context,
                Places ticket,
                ChatCompletionRequest request,
                const MakeAnswerFormat& make_format,
                const ExchangePtr& exchange);

}  // namespace atom::server
