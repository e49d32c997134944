#include "server/endpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "config/context_length.h"
#include "server/anthropic/messages_format.h"
#include "tokenizer/text_model.h"

namespace atom::server {
namespace {

constexpr int kRetryAfterQueueFull = 1;  // seconds

// Whose clients read errors of another shape.
bool is_messages_path(std::string_view path) {
  return path.ends_with("/v1/messages") || path.ends_with("/v1/messages/count_tokens");
}

}  // namespace

bool ServerContext::serves(std::string_view model) const {
  for (const std::string& name : options.served_model_names) {
    if (name == model) return true;
  }
  return false;
}

std::string_view route_path(const ServerContext& context, const HttpRequest& request) {
  std::string_view path = request.path;
  const std::string& root = context.options.root_path;
  if (root.empty()) return path;
  if (path == root) return "/";
  const bool is_below =
      path.starts_with(root) && path.size() > root.size() && path[root.size()] == '/';
  if (is_below) path.remove_prefix(root.size());
  return path;
}

void respond_error(const ExchangePtr& exchange, const ApiError& error) {
  HttpResponse response = error_response(error);
  if (is_messages_path(exchange->request().path)) response.body = messages_error_json(error);
  exchange->respond(std::move(response));
}

void respond_error(const ExchangePtr& exchange, const Status& status) {
  respond_error(exchange, to_api_error(status));
}

void respond_json(const ExchangePtr& exchange, std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  exchange->respond(std::move(response));
}

bool check_model(const ServerContext& context,
                 const std::string& model,
                 const ExchangePtr& exchange) {
  if (model.empty() || context.serves(model)) return true;
  ApiError error = model_not_found(model);
  error.message += fmt::format("; served: {}", fmt::join(context.options.served_model_names, ", "));
  respond_error(exchange, error);
  return false;
}

bool check_chat_template(const ServerContext& context,
                         const std::string& chat_template,
                         const ExchangePtr& exchange) {
  if (chat_template.empty() || context.options.trust_request_chat_template) return true;
  ApiError error;
  error.param = "chat_template";
  error.code = "unsupported";
  error.message =
      "this server takes no chat template from a request; it would with "
      "--trust-request-chat-template";
  respond_error(exchange, error);
  return false;
}

bool tokenize_prompt(const ServerContext& context,
                     const std::string& text,
                     bool add_special_tokens,
                     const GenerationRequest& request,
                     const char* prompt_field,
                     std::vector<int32_t>* ids,
                     const ExchangePtr& exchange) {
  const Tokenizer* tokenizer = context.engine.tokenizer().get();
  if (tokenizer == nullptr) {
    respond_error(exchange, invalid_argument("a text prompt needs a tokenizer, which is left out"));
    return false;
  }
  const auto limit = request.truncate_prompt_tokens
                         ? SIZE_MAX
                         : static_cast<size_t>(context.engine.config().max_model_len());
  const bool is_too_long = limit < SIZE_MAX && text.size() > tokenizer->max_text_bytes(limit);
  Status status = resource_exhausted("too long");
  if (!is_too_long) {
    Result<std::vector<int32_t>> encoded = tokenizer->encode(
        text, add_special_tokens, {.max_tokens = limit, .cancelled = &exchange->gone()});
    if (encoded.ok()) {
      *ids = std::move(encoded).value();
      return true;
    }
    status = encoded.status();
  }
  if (status.code() != StatusCode::kResourceExhausted) {
    respond_error(exchange, to_request_error(status));
    return false;
  }
  ApiError error;
  error.param = prompt_field;
  error.code = "context_length_exceeded";
  error.message = fmt::format(
      "the prompt has more than {} tokens and leaves no room for an answer: that is the model's "
      "limit, prompt and answer together",
      limit);
  respond_error(exchange, error);
  return false;
}

void truncate_prompt(const ServerContext& context,
                     const GenerationRequest& request,
                     std::vector<int32_t>* token_ids) {
  if (!request.truncate_prompt_tokens) return;
  int64_t limit = *request.truncate_prompt_tokens;
  if (limit < 0) {
    const int32_t max_tokens = request.has_max_tokens ? request.sampling.max_tokens : 1;
    limit = std::max<int64_t>(0, context.engine.config().max_model_len() - max_tokens);
  }
  const auto size = static_cast<int64_t>(token_ids->size());
  if (size > limit) token_ids->erase(token_ids->begin(), token_ids->end() - limit);
}

bool check_length(const ServerContext& context,
                  size_t num_prompt_tokens,
                  const GenerationRequest& request,
                  const char* prompt_field,
                  const ExchangePtr& exchange) {
  const int64_t limit = context.engine.config().max_model_len();
  const auto prompt = static_cast<int64_t>(num_prompt_tokens);
  const int32_t max_tokens = request.has_max_tokens ? request.sampling.max_tokens : 1;
  if (prompt + max_tokens <= limit) return true;
  const Status too_long = check_context_length(prompt, max_tokens, limit);
  ApiError error = to_api_error(too_long);
  error.param = prompt_field;
  if (too_long.ok()) {
    error = to_api_error(
        invalid_argument("{} is {}, and a prompt of {} tokens leaves room for {} of the model's {}",
                         request.max_tokens_field,
                         max_tokens,
                         prompt,
                         limit - prompt,
                         limit));
    error.param = request.max_tokens_field;
  }
  error.code = "context_length_exceeded";
  respond_error(exchange, error);
  return false;
}

bool admit(ServerContext* context,
           int64_t num_sequences,
           Places* places,
           const ExchangePtr& exchange) {
  const Caller& caller = *exchange->caller();
  switch (places->resize(&context->admission, caller, num_sequences)) {
    case Places::Outcome::kTaken:
      return true;
    case Places::Outcome::kServerFull:
      refuse_queue_full(context, exchange);
      return false;
    case Places::Outcome::kShareUsed:
      break;
  }
  refuse_rate(context,
              exchange,
              kRetryAfterQueueFull,
              fmt::format("the API key is at its limit of {} running and waiting sequences",
                          caller.max_places()));
  return false;
}

void refuse_rate(ServerContext* context,
                 const ExchangePtr& exchange,
                 int retry_after,
                 std::string message) {
  context->metrics.count_rejected(RejectReason::kRateLimited);
  ApiError error;
  error.http_status = 429;
  error.type = "rate_limit_error";
  error.code = "rate_limit_exceeded";
  error.retry_after = retry_after;
  error.message = std::move(message);
  respond_error(exchange, error);
}

void refuse_queue_full(ServerContext* context, const ExchangePtr& exchange) {
  context->metrics.count_rejected(RejectReason::kQueueFull);
  ApiError error;
  error.http_status = 429;
  error.type = "rate_limit_error";
  error.code = "queue_full";
  error.retry_after = kRetryAfterQueueFull;
  error.message =
      fmt::format("the server is at its limit of {} running and waiting sequences: try again later",
                  context->admission.limit());
  respond_error(exchange, error);
}

std::string answer_id(const char* kind,
                      const HttpExchange& exchange,
                      const std::string& request_id) {
  return fmt::format("{}-{}", kind, request_id.empty() ? exchange.request().id : request_id);
}

}  // namespace atom::server
