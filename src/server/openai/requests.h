// The bodies of requests as typed values: what is behind these structs sees no JSON. Field names
// and meanings are OpenAI's, then vLLM's. Parsing (parse_requests.h) checks every field's type and
// range; what needs the model (ids in the vocabulary, lengths) is checked by the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "config/sampling_params.h"

namespace atom::server {

using PromptInput = std::variant<std::string, std::vector<int32_t>>;

// JSON that only the chat template reads. Null: not given.
using SharedJson = std::shared_ptr<const OrderedJson>;

struct StreamOptions {
  bool include_usage = false;           // a last event with the usage
  bool continuous_usage_stats = false;  // usage in every event
};

// What a client asks of the form of an answer, by the field that it came in and as it was written;
// answer_rules.h knows what it means. Null or empty: not given.
struct AnswerRules {
  SharedJson response_format;     // object
  SharedJson text_format;         // the same of the Responses API
  SharedJson output_format;       // the same of Anthropic's API
  SharedJson structured_outputs;  // vLLM's
  SharedJson guided_json;         // vLLM's older fields
  std::string guided_regex;
  std::vector<std::string> guided_choice;
  std::string guided_grammar;
  SharedJson json_schema;  // of other servers
  std::string regex;
  std::string ebnf;
  std::string grammar;
  SharedJson structural_tag;
};

// What completions and chat completions have in common.
struct GenerationRequest {
  std::string model;        // empty: the server's first
  SamplingParams sampling;  // n, temperature, ..., logprobs, priority, cache_salt
  const char* max_tokens_field = "max_tokens";  // by which name the limit came
  bool has_max_tokens = false;  // else sampling.max_tokens is to be what the context allows
  bool stream = false;
  StreamOptions stream_options;
  AnswerRules rules;
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;        // logprobs name tokens "token_id:N"
  std::optional<int32_t> truncate_prompt_tokens;  // the last of them; -1: what the context takes
  std::string request_id;                         // vLLM's request_id; empty: the HTTP request's
  std::string user;  // the client's name for its user, for logs only; may be empty
  std::vector<std::pair<std::string, std::string>> metadata;  // the client's notes
};

struct CompletionRequest : GenerationRequest {
  std::vector<PromptInput> prompts;  // at least one
  std::optional<int32_t> best_of;    // >= n; the best by mean logprob are returned
  bool echo = false;
  std::optional<int32_t> logprobs;  // top alternatives of each token; as sampling.logprobs
  bool add_special_tokens = true;
};

// kRequired: the answer is calls, kNamed: of one tool. Else as the template and the parser do, and
// where some tools alone are allowed calls are of these.
struct ToolChoice {
  enum Kind { kNone, kAuto, kRequired, kNamed };

  ToolChoice(Kind choice = kAuto, std::string tool = {})  // NOLINT: implicit by design
      : kind(choice), name(std::move(tool)) {}
  bool operator==(Kind other) const { return kind == other; }
  bool is_forced() const { return kind == kRequired || kind == kNamed; }

  Kind kind;
  std::string name;                  // of kNamed
  std::vector<std::string> allowed;  // of kAuto and kRequired; empty: all of the request's tools
};

struct ChatCompletionRequest : GenerationRequest {
  SharedJson messages;  // array of at least one, checked: roles, contents, tool calls. No field but
                        // content is null, parts are {"type": "text", "text"}
  SharedJson tools;     // array, checked; null or at least one
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;  // false: only the first call is returned
  bool logprobs = false;            // then sampling.logprobs is top_logprobs
  int32_t top_logprobs = 0;
  bool echo = false;  // the last message's text in front of the answer
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // then add_generation_prompt is false
  bool add_special_tokens = false;
  bool include_reasoning = true;
  std::optional<int32_t> max_thinking_tokens;
  const char* max_thinking_field = nullptr;  // by which name it came; null: only a wish
  std::string chat_template;                 // instead of the model's; empty: the model's
  SharedJson chat_template_kwargs;           // object, reasoning_effort included; null: none
  SharedJson documents;                      // array of objects; null: none

  // What the template shows and the parser takes calls of; null: none.
  const OrderedJson* usable_tools() const {
    return tool_choice == ToolChoice::kNone ? nullptr : tools.get();
  }
};

struct TokenizeRequest {
  std::string model;
  std::optional<std::string> prompt;  // the one form ...
  SharedJson messages;                // ... or the other, as in ChatCompletionRequest
  SharedJson tools;
  bool add_special_tokens = true;  // false by default in the messages form
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool return_token_strs = false;
  std::string chat_template;
  SharedJson chat_template_kwargs;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};

}  // namespace atom::server
