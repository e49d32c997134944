// POST /v1/completions
#include <ctime>
#include <utility>

#include "server/answer_rules.h"
#include "server/endpoint.h"
#include "server/openai/completion_format.h"
#include "server/openai/generation.h"
#include "server/openai/parse_requests.h"
#include "server/openai/request_tables.h"

namespace atom::server {
namespace {

constexpr std::string_view kCompletionsAnswerSchemas = R"json(
"CompletionLogprobs": {
  "type": "object",
  "required": ["text_offset", "token_logprobs", "tokens", "top_logprobs"],
  "properties": {
    "text_offset": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    "token_logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
    "tokens": {"type": "array", "items": {"type": "string"}},
    "top_logprobs": {"type": "array", "items": {
      "type": ["object", "null"], "additionalProperties": {"type": "number"}}}
  }
},
"CompletionChoice": {
  "type": "object",
  "required": ["index", "text", "logprobs", "finish_reason"],
  "properties": {
    "index": {"type": "integer", "minimum": 0},
    "text": {"type": "string"},
    "logprobs": {"anyOf": [{"$ref": "#/components/schemas/CompletionLogprobs"}, {"type": "null"}]},
    "finish_reason": {"enum": ["stop", "length", "abort", null]},
    "stop_reason": {"$ref": "#/components/schemas/StopReason"},
    "prompt_logprobs": {"$ref": "#/components/schemas/PromptLogprobs"},
    "token_ids": {"$ref": "#/components/schemas/TokenIds"},
    "prompt_token_ids": {"$ref": "#/components/schemas/TokenIds"}
  }
},
"Completion": {
  "type": "object",
  "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {
    "system_fingerprint": {"type": "string"},
    "id": {"type": "string"},
    "object": {"const": "text_completion"},
    "created": {"type": "integer"},
    "model": {"type": "string"},
    "choices": {"type": "array", "items": {"$ref": "#/components/schemas/CompletionChoice"}},
    "usage": {"$ref": "#/components/schemas/Usage"}
  }
}
)json";

// Answers and returns false when the text cannot be one.
bool prepare(const ServerContext& context,
             const CompletionRequest& request,
             const PromptInput& input,
             CompletionPrompt* prompt,
             const ExchangePtr& exchange) {
  const auto* text = std::get_if<std::string>(&input);
  if (text == nullptr) {
    prompt->token_ids = std::get<std::vector<int32_t>>(input);
  } else if (!tokenize_prompt(context,
                              *text,
                              request.add_special_tokens,
                              request,
                              "prompt",
                              &prompt->token_ids,
                              exchange)) {
    return false;
  }
  const size_t num_tokens = prompt->token_ids.size();
  truncate_prompt(context, request, &prompt->token_ids);
  if (text != nullptr && prompt->token_ids.size() == num_tokens) {
    prompt->text = *text;
  } else if (request.echo && context.engine.tokenizer() != nullptr) {
    prompt->text =
        context.engine.tokenizer()->decode(prompt->token_ids, request.sampling.skip_special_tokens);
  }
  return true;
}

// What the engine is to do, beyond what the request says.
SamplingParams engine_sampling(const CompletionRequest& request) {
  SamplingParams sampling = request.sampling;
  if (request.echo && request.logprobs && !sampling.prompt_logprobs) {
    sampling.prompt_logprobs = request.logprobs;
  }
  if (request.best_of.value_or(0) > sampling.n) {
    sampling.n = *request.best_of;
    if (!sampling.logprobs) sampling.logprobs = 0;
  }
  return sampling;
}

// The best answers are known only when all are complete.
bool check_best_of(const CompletionRequest& request, const ExchangePtr& exchange) {
  if (!request.stream || request.best_of.value_or(0) <= request.sampling.n) return true;
  ApiError error;
  error.param = "best_of";
  error.code = "conflicting_fields";
  error.message = "best_of over n cannot be streamed: the best answers are known only at the end";
  respond_error(exchange, error);
  return false;
}

void completions(ServerContext* context, const ExchangePtr& exchange) {
  GenerationPlan plan;
  if (!admit(context, 1, &plan.ticket, exchange)) return;
  Parsed<CompletionRequest> parsed = parse_completion_request(
      exchange->request().body, context->engine.default_sampling(), BodyReader(context).context());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return respond_error(exchange, *error);
  auto& request = std::get<CompletionRequest>(parsed);
  if (!check_model(*context, request.model, exchange)) return;
  if (!check_best_of(request, exchange)) return;
  plan.sampling = engine_sampling(request);
  ApiError rules_error;
  if (!constrain_completion(request.rules, &plan.sampling, &rules_error)) {
    return respond_error(exchange, rules_error);
  }
  const auto num_prompts = static_cast<int64_t>(request.prompts.size());
  if (!admit(context, num_prompts * plan.sampling.n, &plan.ticket, exchange)) return;
  std::vector<CompletionPrompt> prompts;
  for (const PromptInput& input : request.prompts) {
    CompletionPrompt prompt;
    if (!prepare(*context, request, input, &prompt, exchange)) return;
    if (!check_length(*context, prompt.token_ids.size(), request, "prompt", exchange)) return;
    plan.prompts.push_back(prompt.token_ids);
    prompts.push_back(std::move(prompt));
  }
  plan.stream = request.stream;
  plan.stream_options = request.stream_options;
  const std::string id = answer_id("cmpl", *exchange, request.request_id);
  const std::string model = request.model.empty() ? context->model_name() : request.model;
  plan.format = std::make_unique<CompletionFormat>(id,
                                                   std::time(nullptr),
                                                   model,
                                                   context->system_fingerprint,
                                                   std::move(request),
                                                   std::move(prompts),
                                                   context->engine.tokenizer().get());
  Generation::start(context, exchange, std::move(plan));
}

}  // namespace

constinit const Endpoint kCompletions{completions,
                                      {.id = "create_completion",
                                       .summary = "Continue a prompt.",
                                       .request = "CompletionRequest",
                                       .add_request = add_completion_schemas,
                                       .answer = "Completion",
                                       .answer_schemas = kCompletionsAnswerSchemas,
                                       .streams = true}};

}  // namespace atom::server
