#include "server/openai/answer_format.h"

#include <algorithm>

#include "server/json_text.h"

namespace atom::server {

std::string answer_head(const std::string& id,
                        const char* object,
                        int64_t created,
                        const std::string& model) {
  std::string head = "{\"id\":";
  append_json_string(&head, id);
  head += ",\"object\":\"";
  head += object;
  head += "\",\"created\":";
  append_json_integer(&head, created);
  head += ",\"model\":";
  append_json_string(&head, model);
  head += ",\"choices\":[";
  return head;
}

void append_usage(std::string* out, const Usage& usage) {
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

}  // namespace atom::server
