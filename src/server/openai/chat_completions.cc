// POST /v1/chat/completions
#include <ctime>
#include <functional>
#include <utility>

#include "server/endpoint.h"
#include "server/openai/chat_completion_format.h"
#include "server/openai/generation.h"
#include "server/openai/parse_requests.h"

namespace atom::server {

void chat_completions(ServerContext* context, const ExchangePtr& exchange) {
  GenerationPlan plan;
  if (!admit(context, 1, &plan.ticket, exchange)) return;
  Parsed<ChatCompletionRequest> parsed =
      parse_chat_completion_request(exchange->request().body, context->engine.default_sampling());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return respond_error(exchange, *error);
  auto& request = std::get<ChatCompletionRequest>(parsed);
  if (!check_model(*context, request.model, exchange)) return;
  if (context->chat == nullptr) {
    return respond_error(exchange, unimplemented("no chat: {}", context->why_no_chat));
  }
  if (!admit(context, request.sampling.n, &plan.ticket, exchange)) return;
  Result<ChatPrompt> prompt = context->chat->render(request);
  if (!prompt.ok()) return respond_error(exchange, to_request_error(prompt.status()));
  const std::optional<int32_t> max_tokens =
      request.has_max_tokens ? std::optional(request.sampling.max_tokens) : std::nullopt;
  if (!check_length(*context, prompt->token_ids.size(), max_tokens, "messages", exchange)) return;

  const OutputFormat& output_format = context->chat->output_format();
  plan.sampling = request.sampling;
  plan.sampling.kept_special_token_ids =
      context->chat->kept_special_token_ids(request.usable_tools() != nullptr);
  plan.stream = request.stream;
  plan.stream_options = request.stream_options;
  plan.prompts.push_back(prompt->token_ids);
  const std::string id = answer_id("chatcmpl", *exchange, request.request_id);
  const std::string model = request.model.empty() ? context->model_name() : request.model;
  plan.format = std::make_unique<ChatCompletionFormat>(id,
                                                       std::time(nullptr),
                                                       model,
                                                       std::move(request),
                                                       prompt->text,
                                                       std::move(prompt->token_ids),
                                                       output_format,
                                                       context->engine.tokenizer().get(),
                                                       std::hash<std::string>()(id));
  Generation::start(context, exchange, std::move(plan));
}

}  // namespace atom::server
