// What the answers of one request look like as JSON: the difference between completions and chat
// completions. One object per request, used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/token_logprobs.h"
#include "engine/request_output.h"
#include "server/openai/api_error.h"
#include "server/openai/requests.h"
#include "server/parsers/output_parser.h"

namespace atom::server {

// What is new of one choice, merged while the client was not ready to take it.
struct ChoiceNews {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;
  FinishReason finish_reason = FinishReason::kNone;
  std::string stop_string;
  std::optional<int32_t> stop_token_id;

  bool is_empty() const {
    return text.empty() && token_ids.empty() && finish_reason == FinishReason::kNone;
  }
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<int64_t> cached_tokens;  // none: not told
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // How often a prompt, or its logprobs, stands in the answer.
  virtual int32_t num_prompt_copies() const { return 1; }

  // Server-sent events with the news of a choice: one, or none when nothing is to be shown yet.
  // `usage` is of all choices so far; null when it is not to be shown.
  virtual void append_events(int32_t choice,
                             const ChoiceNews& news,
                             const Usage* usage,
                             std::string* out) = 0;
  // The event with the usage and no choice.
  virtual void append_usage_event(const Usage& usage, std::string* out) = 0;
  // What ends a stream: after the last news and the usage, and in place of them when the answer
  // fails.
  virtual void append_end(std::string* out);
  virtual void append_error(const ApiError& error, std::string* out);
  // The whole response. One output per prompt, each with the answers of this prompt.
  virtual std::string body(std::span<const RequestOutput> outputs, const Usage& usage) = 0;
};

// What both kinds write alike.

// {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":...,"choices":[
std::string answer_head(const std::string& id,
                        const char* object,
                        int64_t created,
                        const std::string& model,
                        const std::string& fingerprint);
// `num_reasoning_tokens`: among those of the answer; none where answers have no reasoning.
void append_usage(std::string* out,
                  const Usage& usage,
                  std::optional<int64_t> num_reasoning_tokens = {});
// "stop_reason": the stop string or the request's own stop token that ended the answer, else null.
void append_stop_reason(std::string* out,
                        const std::string& stop_string,
                        std::optional<int32_t> stop_token_id,
                        std::span<const int32_t> stop_token_ids);
ChoiceNews all_of(const CompletionOutput& answer);

// The parser of one answer to a conversation whose prompt is `prompt_text`.
std::unique_ptr<OutputParser> make_answer_parser(const OutputFormat& output_format,
                                                 std::string_view prompt_text,
                                                 const ChatCompletionRequest& request,
                                                 uint64_t id_seed);
// The news as the model's format has it, less what the request does not want.
OutputDelta parse_news(OutputParser& parser,
                       const ChatCompletionRequest& request,
                       const ChoiceNews& news);

}  // namespace atom::server
