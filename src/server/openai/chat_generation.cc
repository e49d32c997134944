#include "server/openai/chat_generation.h"

#include <fmt/format.h>

#include <utility>

#include "server/openai/field_error.h"

namespace atom::server {

bool render_chat(ServerContext* context, PreparedChat* chat, const ExchangePtr& exchange) {
  const ChatCompletionRequest& request = chat->request;
  if (!check_model(*context, request.model, exchange)) return false;
  chat->model = request.model.empty() ? context->model_name() : request.model;
  if (!check_chat_template(*context, request.chat_template, exchange)) return false;
  if (context->chat == nullptr) {
    respond_error(exchange, unimplemented("no chat: {}", context->why_no_chat));
    return false;
  }
  // The template writes the special tokens itself, unless the request says otherwise.
  Result<std::string> text = context->chat->render(request, exchange->gone());
  if (!text.ok()) {
    respond_error(exchange, to_request_error(text.status()));
    return false;
  }
  chat->prompt.text = std::move(*text);
  if (!tokenize_prompt(*context,
                       chat->prompt.text,
                       request.add_special_tokens,
                       request,
                       "messages",
                       &chat->prompt.token_ids,
                       exchange)) {
    return false;
  }
  chat->tokenizer = context->engine.tokenizer();
  truncate_prompt(*context, request, &chat->prompt.token_ids);
  return true;
}

namespace {

bool limit_thinking(ServerContext* context, PreparedChat* chat, const ExchangePtr& exchange) {
  ChatCompletionRequest& request = chat->request;
  if (!request.max_thinking_tokens) return true;
  const bool is_limited = context->chat->limit_thinking(
      *request.max_thinking_tokens, chat->prompt.text, &request.sampling);
  if (is_limited || request.max_thinking_field == nullptr) return true;
  ApiError error;
  fail(
      &error,
      FieldPath().field(request.max_thinking_field),
      kUnsupportedField,
      fmt::format("{}: reasoning is not told apart in this model's answers, see --reasoning-parser",
                  request.max_thinking_field));
  respond_error(exchange, error);
  return false;
}

}  // namespace

void start_chat(ServerContext* context,
                Places ticket,
                ChatCompletionRequest request,
                const MakeAnswerFormat& make_format,
                const ExchangePtr& exchange) {
  GenerationPlan plan;
  plan.ticket = std::move(ticket);
  if (!admit(context, request.sampling.n, &plan.ticket, exchange)) return;
  PreparedChat chat;
  chat.request = std::move(request);
  if (!render_chat(context, &chat, exchange)) return;
  const size_t num_tokens = chat.prompt.token_ids.size();
  if (!check_length(*context, num_tokens, chat.request, "messages", exchange)) return;
  if (!limit_thinking(context, &chat, exchange)) return;
  ApiError error;
  if (!context->chat->constrain(chat.request, chat.prompt.text, &chat.request.sampling, &error)) {
    return respond_error(exchange, error);
  }
  chat.request.sampling.kept_special_token_ids =
      context->chat->kept_special_token_ids(chat.request.usable_tools() != nullptr);
  plan.sampling = chat.request.sampling;
  plan.stream = chat.request.stream;
  plan.stream_options = chat.request.stream_options;
  plan.prompts.push_back(chat.prompt.token_ids);
  plan.format = make_format(std::move(chat), context->chat->output_format());
  Generation::start(context, exchange, std::move(plan));
}

}  // namespace atom::server
