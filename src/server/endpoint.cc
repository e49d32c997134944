#include "server/endpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "config/context_length.h"

namespace atom::server {
namespace {

constexpr int kRetryAfterQueueFull = 1;  // seconds

}  // namespace

bool ServerContext::serves(std::string_view model) const {
  for (const std::string& name : options.served_model_names) {
    if (name == model) return true;
  }
  return false;
}

void respond_error(const ExchangePtr& exchange, const ApiError& error) {
  exchange->respond(error_response(error));
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

bool check_length(const ServerContext& context,
                  size_t num_prompt_tokens,
                  std::optional<int32_t> max_tokens,
                  const char* prompt_field,
                  const ExchangePtr& exchange) {
  const int64_t limit = context.engine.config().max_model_len();
  const auto prompt = static_cast<int64_t>(num_prompt_tokens);
  const Status status = check_context_length(prompt, max_tokens.value_or(1), limit);
  if (status.ok() && prompt + max_tokens.value_or(1) <= limit) return true;
  ApiError error = to_api_error(
      status.ok()
          ? invalid_argument(
                "max_tokens is {}, and a prompt of {} tokens leaves room for {} of the model's {}",
                *max_tokens,
                prompt,
                limit - prompt,
                limit)
          : status);
  error.code = "context_length_exceeded";
  error.param = status.ok() ? "max_tokens" : prompt_field;
  respond_error(exchange, error);
  return false;
}

bool admit(ServerContext* context,
           int64_t num_sequences,
           AdmissionTicket* ticket,
           const ExchangePtr& exchange) {
  if (ticket->resize(&context->admission, num_sequences)) return true;
  refuse_queue_full(context, exchange);
  return false;
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
