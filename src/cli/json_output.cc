#include "cli/json_output.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "engine/messages.h"

namespace atom::cli {
namespace {

OrderedJson logprob_json(const TokenLogprob& entry, const Tokenizer* tokenizer) {
  OrderedJson json = {{"token_id", entry.token_id}};
  if (tokenizer != nullptr) json["token"] = tokenizer->token_bytes(entry.token_id);
  json["logprob"] = entry.logprob;
  json["rank"] = entry.rank;
  return json;
}

// The chosen token, with the likeliest ones under "top".
OrderedJson logprobs_json(const TokenLogprobs& entries, const Tokenizer* tokenizer) {
  if (entries.empty()) return nullptr;
  OrderedJson json = logprob_json(entries[0], tokenizer);
  OrderedJson& top = json["top"] = OrderedJson::array();
  for (size_t i = 1; i < entries.size(); ++i) top.push_back(logprob_json(entries[i], tokenizer));
  return json;
}

OrderedJson logprobs_json(const std::vector<TokenLogprobs>& tokens, const Tokenizer* tokenizer) {
  if (tokens.empty()) return nullptr;
  OrderedJson json = OrderedJson::array();
  for (const TokenLogprobs& entries : tokens) json.push_back(logprobs_json(entries, tokenizer));
  return json;
}

OrderedJson stop_reason_json(const CompletionOutput& answer) {
  if (!answer.stop_string.empty()) return answer.stop_string;
  if (answer.stop_token_id) return *answer.stop_token_id;
  return nullptr;
}

OrderedJson answer_json(const CompletionOutput& answer, const Tokenizer* tokenizer) {
  return {{"index", answer.index},
          {"text", answer.text},
          {"token_ids", answer.token_ids},
          {"finish_reason", finish_reason_name(answer.finish_reason)},
          {"stop_reason", stop_reason_json(answer)},
          {"logprobs", logprobs_json(answer.logprobs, tokenizer)}};
}

// Seconds.
OrderedJson metrics_json(const RequestOutput& output) {
  const RequestMetrics& metrics = output.metrics;
  size_t num_generated = 0;
  for (const CompletionOutput& answer : output.outputs) num_generated += answer.token_ids.size();
  OrderedJson first_token;
  if (metrics.first_token > 0) first_token = metrics.time_to_first_token();
  return {{"num_prompt_tokens", output.prompt_token_ids.size()},
          {"num_generated_tokens", num_generated},
          {"num_cached_tokens", metrics.num_cached_tokens},
          {"time_to_first_token", std::move(first_token)},
          {"duration", metrics.finished - metrics.arrival}};
}

}  // namespace

std::string to_line(const OrderedJson& json) {
  return json_text(json) + "\n";
}

OrderedJson request_json(size_t index, const RequestOutput& output, const Tokenizer* tokenizer) {
  OrderedJson json = {{"index", index}};
  if (!output.status.ok()) {
    json["error"] = {{"code", status_code_name(output.status.code())},
                     {"message", output.status.message()}};
    return json;
  }
  json["prompt_token_ids"] = output.prompt_token_ids;
  OrderedJson& answers = json["outputs"] = OrderedJson::array();
  for (const CompletionOutput& answer : output.outputs) {
    answers.push_back(answer_json(answer, tokenizer));
  }
  // Nothing comes before the first token.
  json["prompt_logprobs"] = nullptr;
  if (!output.prompt_logprobs.empty()) {
    OrderedJson scores = logprobs_json(output.prompt_logprobs, tokenizer);
    scores.insert(scores.begin(), nullptr);
    json["prompt_logprobs"] = std::move(scores);
  }
  json["metrics"] = metrics_json(output);
  return json;
}

}  // namespace atom::cli
