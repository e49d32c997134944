#include "server/openai/parse_requests.h"

#include <nlohmann/json.hpp>

#include "server/openai/field_error.h"
#include "server/openai/parse_body.h"
#include "server/openai/request_tables.h"

namespace atom::server {
namespace {

constexpr size_t kMaxJsonErrorBytes = 300;
constexpr JsonLimits kLimits = {.max_bytes = size_t{64} << 20,
                                .max_depth = 64,
                                .max_nodes = 8'000'000,
                                .max_keys_per_object = 4096};

bool fail_conflict(ApiError* error, std::string_view field, std::string message) {
  const FieldPath body;
  return fail(error, body.field(field), kConflictingFields, std::move(message));
}

bool check_logprobs(const char* field,
                    std::optional<int32_t> count,
                    const BodyContext& context,
                    ApiError* error) {
  if (count.value_or(0) <= context.max_logprobs) return true;
  return fail(error,
              FieldPath().field(field),
              kInvalidValue,
              fmt::format("{} is {}; expected at most {}, the server's --max-logprobs",
                          field,
                          *count,
                          context.max_logprobs));
}

// The rules between fields that completions and chat completions share. max_tokens is settled.
bool finish_generation(const GenerationExtras& extras,
                       const BodyContext& context,
                       GenerationRequest* request,
                       ApiError* error) {
  const SamplingParams& sampling = request->sampling;
  if (extras.given_stream_options && !request->stream) {
    return fail_conflict(error, "stream_options", "stream_options are only for stream: true");
  }
  if (!check_logprobs("prompt_logprobs", sampling.prompt_logprobs, context, error)) return false;
  if (request->stream && sampling.prompt_logprobs) {
    return fail_conflict(
        error, "prompt_logprobs", "prompt_logprobs cannot be streamed; expected stream: false");
  }
  if (request->has_max_tokens && sampling.min_tokens > sampling.max_tokens) {
    return fail_conflict(error,
                         "min_tokens",
                         fmt::format("min_tokens is {}; expected at most {}, which is {}",
                                     sampling.min_tokens,
                                     request->max_tokens_field,
                                     sampling.max_tokens));
  }
  return true;
}

void settle(const GenerationExtras& extras,
            std::optional<int32_t> max_tokens,
            GenerationRequest* request) {
  request->has_max_tokens = max_tokens.has_value();
  if (max_tokens) request->sampling.max_tokens = *max_tokens;
  if (extras.given_stream_options) request->stream_options = *extras.given_stream_options;
}

bool settle_generation_prompt(std::optional<bool> wanted,
                              bool continue_final_message,
                              bool* add_generation_prompt,
                              ApiError* error) {
  if (continue_final_message && wanted.value_or(false)) {
    return fail_conflict(error,
                         "continue_final_message",
                         "continue_final_message and add_generation_prompt are both true; expected "
                         "at most one");
  }
  *add_generation_prompt = wanted.value_or(!continue_final_message);
  return true;
}

bool read_completion(std::string_view text,
                     const FieldPath& root,
                     CompletionFields* fields,
                     ApiError* error) {
  OrderedJson body;
  if (!parse_body(text, &body, error)) return false;
  if (!completion_table().read(body, root, fields, error)) return false;
  settle(*fields, fields->max_tokens.value_or(kDefaultCompletionTokens), fields);
  fields->sampling.logprobs = fields->logprobs;
  if (!check_logprobs("logprobs", fields->logprobs, root.body(), error)) return false;
  if (fields->best_of && *fields->best_of < fields->sampling.n) {
    return fail_conflict(error,
                         "best_of",
                         fmt::format("best_of is {}; expected at least n, which is {}",
                                     *fields->best_of,
                                     fields->sampling.n));
  }
  return finish_generation(*fields, root.body(), fields, error);
}

void add_reasoning_effort(ChatCompletionFields* fields) {
  if (fields->reasoning_effort.empty()) return;
  OrderedJson arguments = fields->chat_template_kwargs == nullptr ? OrderedJson::object()
                                                                  : *fields->chat_template_kwargs;
  arguments["reasoning_effort"] = fields->reasoning_effort;
  fields->chat_template_kwargs = std::make_shared<const OrderedJson>(std::move(arguments));
}

void settle_thinking(ChatCompletionFields* fields) {
  fields->max_thinking_field = "max_thinking_tokens";
  if (!fields->thinking_token_budget) return;
  fields->max_thinking_field = "thinking_token_budget";
  fields->max_thinking_tokens = fields->thinking_token_budget;
  if (*fields->thinking_token_budget < 0) fields->max_thinking_tokens.reset();
}

bool read_chat_completion(std::string_view text,
                          const FieldPath& root,
                          ChatCompletionFields* fields,
                          ApiError* error) {
  OrderedJson body;
  if (!parse_body(text, &body, error)) return false;
  if (!chat_completion_table().read(body, root, fields, error)) return false;
  settle(*fields,
         fields->max_completion_tokens ? fields->max_completion_tokens : fields->max_tokens,
         fields);
  if (fields->max_completion_tokens) fields->max_tokens_field = "max_completion_tokens";
  if (!check_logprobs("top_logprobs", fields->top_logprobs, root.body(), error)) return false;
  if (fields->logprobs) {
    fields->sampling.logprobs = fields->top_logprobs;
  } else if (fields->top_logprobs > 0) {
    return fail_conflict(error, "top_logprobs", "top_logprobs are only for logprobs: true");
  }
  if (!settle_generation_prompt(fields->wants_generation_prompt,
                                fields->continue_final_message,
                                &fields->add_generation_prompt,
                                error)) {
    return false;
  }
  if (!fields->safety_identifier.empty()) fields->user = fields->safety_identifier;
  add_reasoning_effort(fields);
  settle_thinking(fields);
  return finish_generation(*fields, root.body(), fields, error);
}

bool read_tokenize(std::string_view text,
                   const FieldPath& root,
                   TokenizeFields* fields,
                   ApiError* error) {
  OrderedJson body;
  if (!parse_body(text, &body, error)) return false;
  const auto messages = body.find("messages");
  if (messages == body.end() || messages->is_null()) {
    return tokenize_prompt_table().read(body, root, fields, error);
  }
  fields->add_special_tokens = false;
  if (!tokenize_chat_table().read(body, root, fields, error)) return false;
  return settle_generation_prompt(fields->wants_generation_prompt,
                                  fields->continue_final_message,
                                  &fields->add_generation_prompt,
                                  error);
}

}  // namespace

bool parse_body(std::string_view text, OrderedJson* body, ApiError* error) {
  Result<OrderedJson> json = parse_ordered_json(text, "the body", kLimits);
  if (!json.ok()) {
    return fail(error, {}, kInvalidJson, printable(json.status().message(), kMaxJsonErrorBytes));
  }
  if (!json->is_object()) return fail_type(error, {}, *json, "an object");
  *body = *std::move(json);
  return true;
}

Parsed<CompletionRequest> parse_completion_request(std::string_view body,
                                                   const SamplingParams& defaults,
                                                   const BodyContext& context) {
  CompletionFields fields;
  fields.sampling = defaults;
  ApiError error;
  if (!read_completion(body, {.context = &context}, &fields, &error)) return error;
  return static_cast<CompletionRequest&&>(fields);
}

Parsed<ChatCompletionRequest> parse_chat_completion_request(std::string_view body,
                                                            const SamplingParams& defaults,
                                                            const BodyContext& context) {
  ChatCompletionFields fields;
  fields.sampling = defaults;
  ApiError error;
  if (!read_chat_completion(body, {.context = &context}, &fields, &error)) return error;
  return static_cast<ChatCompletionRequest&&>(fields);
}

Parsed<TokenizeRequest> parse_tokenize_request(std::string_view body, const BodyContext& context) {
  TokenizeFields fields;
  ApiError error;
  if (!read_tokenize(body, {.context = &context}, &fields, &error)) return error;
  return static_cast<TokenizeRequest&&>(fields);
}

Parsed<DetokenizeRequest> parse_detokenize_request(std::string_view text,
                                                   const BodyContext& context) {
  OrderedJson body;
  DetokenizeRequest request;
  ApiError error;
  if (!parse_body(text, &body, &error)) return error;
  if (!detokenize_table().read(body, {.context = &context}, &request, &error)) return error;
  return request;
}

}  // namespace atom::server
