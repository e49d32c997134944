#include "server/openai/answer_format.h"

#include <algorithm>
#include <utility>

#include "server/json_text.h"

namespace atom::server {

namespace {

// Names and punctuation of answer_head().
constexpr size_t kAboutHeadBytes = 128;

// `later` continues `whole`.
void join(OutputDelta* whole, OutputDelta later) {
  whole->reasoning += later.reasoning;
  whole->content += later.content;
  for (ToolCallDelta& piece : later.tool_calls) {
    if (!whole->tool_calls.empty() && whole->tool_calls.back().index == piece.index) {
      whole->tool_calls.back().arguments += piece.arguments;
    } else {
      whole->tool_calls.push_back(std::move(piece));
    }
  }
}

}  // namespace

std::string answer_head(const std::string& id,
                        const char* object,
                        int64_t created,
                        const std::string& model,
                        const std::string& fingerprint) {
  std::string head;
  head.reserve(kAboutHeadBytes + id.size() + model.size() + fingerprint.size());
  head += "{\"id\":";
  append_json_string(&head, id);
  head += ",\"object\":\"";
  head += object;
  head += "\",\"created\":";
  append_json_integer(&head, created);
  head += ",\"model\":";
  append_json_string(&head, model);
  head += ",\"system_fingerprint\":";
  append_json_string(&head, fingerprint);
  head += ",\"choices\":[";
  return head;
}

void append_usage(std::string* out,
                  const Usage& usage,
                  std::optional<int64_t> num_reasoning_tokens) {
  *out += "{\"prompt_tokens\":";
  append_json_integer(out, usage.prompt_tokens);
  *out += ",\"completion_tokens\":";
  append_json_integer(out, usage.completion_tokens);
  *out += ",\"total_tokens\":";
  append_json_integer(out, usage.prompt_tokens + usage.completion_tokens);
  if (usage.cached_tokens) {
    *out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
    append_json_integer(out, *usage.cached_tokens);
    out->push_back('}');
  }
  if (num_reasoning_tokens) {
    *out += ",\"completion_tokens_details\":{\"reasoning_tokens\":";
    append_json_integer(out, *num_reasoning_tokens);
    out->push_back('}');
  }
  out->push_back('}');
}

void append_stop_reason(std::string* out,
                        const std::string& stop_string,
                        std::optional<int32_t> stop_token_id,
                        std::span<const int32_t> stop_token_ids) {
  *out += ",\"stop_reason\":";
  if (!stop_string.empty()) {
    append_json_string(out, stop_string);
  } else if (stop_token_id &&
             std::ranges::find(stop_token_ids, *stop_token_id) != stop_token_ids.end()) {
    append_json_integer(out, *stop_token_id);
  } else {
    *out += "null";
  }
}

ChoiceNews all_of(const CompletionOutput& answer) {
  ChoiceNews news;
  news.text = answer.text;
  news.token_ids = answer.token_ids;
  news.logprobs = answer.logprobs;
  news.finish_reason = answer.finish_reason;
  news.stop_string = answer.stop_string;
  news.stop_token_id = answer.stop_token_id;
  return news;
}

std::unique_ptr<OutputParser> make_answer_parser(const OutputFormat& output_format,
                                                 std::string_view prompt_text,
                                                 const ChatCompletionRequest& request,
                                                 uint64_t id_seed) {
  constexpr size_t kPromptTail = 512;  // bytes: more than any template puts behind a turn
  if (prompt_text.size() > kPromptTail) prompt_text.remove_prefix(prompt_text.size() - kPromptTail);
  return output_format.make_parser(prompt_text, request.usable_tools(), id_seed);
}

OutputDelta parse_news(OutputParser& parser,
                       const ChatCompletionRequest& request,
                       const ChoiceNews& news) {
  OutputDelta delta = parser.feed(news.text);
  if (news.finish_reason != FinishReason::kNone) join(&delta, parser.finish());
  if (!request.include_reasoning) delta.reasoning.clear();
  if (!request.parallel_tool_calls) {
    std::erase_if(delta.tool_calls, [](const ToolCallDelta& call) { return call.index > 0; });
  }
  return delta;
}

void AnswerFormat::append_end(std::string* out) {
  *out += "data: [DONE]\n\n";
}

void AnswerFormat::append_error(const ApiError& error, std::string* out) {
  *out += "data: " + error_json(error) + "\n\n";
  append_end(out);
}

}  // namespace atom::server
