#include "server/openai/chat_completion_format.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/llm_engine.h"
#include "server/json_text.h"
#include "server/openai/logprobs_json.h"

namespace atom::server {
namespace {

// Objects of "tool_calls". Pieces of one call carry its index; whole calls do not.
void append_tool_calls(const std::vector<ToolCallDelta>& calls, bool as_pieces, std::string* out) {
  out->push_back('[');
  for (size_t i = 0; i < calls.size(); ++i) {
    const ToolCallDelta& call = calls[i];
    if (i > 0) out->push_back(',');
    out->push_back('{');
    if (as_pieces) {
      *out += "\"index\":";
      append_json_integer(out, call.index);
      if (!call.id.empty()) out->push_back(',');
    }
    if (!call.id.empty()) {
      *out += "\"id\":";
      append_json_string(out, call.id);
      *out += ",\"type\":\"function\"";
    }
    *out += ",\"function\":{";
    if (!call.name.empty()) {
      *out += "\"name\":";
      append_json_string(out, call.name);
      out->push_back(',');
    }
    *out += "\"arguments\":";
    append_json_string(out, call.arguments);
    *out += "}}";
  }
  out->push_back(']');
}

}  // namespace

ChatCompletionFormat::ChatCompletionFormat(const std::string& id,
                                           int64_t created,
                                           const std::string& fingerprint,
                                           PreparedChat chat,
                                           const OutputFormat& output_format,
                                           uint64_t id_seed)
    : request_(std::move(chat.request)),
      chunk_head_(answer_head(id, "chat.completion.chunk", created, chat.model, fingerprint)),
      head_(answer_head(id, "chat.completion", created, chat.model, fingerprint)),
      prompt_token_ids_(std::move(chat.prompt.token_ids)),
      tokenizer_(std::move(chat.tokenizer)) {
  for (int32_t i = 0; i < request_.sampling.n; ++i) {
    const auto make_parser = [&] {
      return make_answer_parser(output_format, chat.prompt.text, request_, id_seed + i);
    };
    Choice& choice = choices_.emplace_back();
    choice.parser = make_parser();
    choice.reasoning =
        std::make_unique<ReasoningCounter>(tokenizer_, request_.sampling, make_parser());
  }
}

OutputDelta ChatCompletionFormat::parse(Choice& choice, const ChoiceNews& news) const {
  choice.reasoning->add(news.token_ids);
  return parse_news(*choice.parser, request_, news);
}

int64_t ChatCompletionFormat::num_reasoning_tokens() const {
  int64_t count = 0;
  for (const Choice& choice : choices_) count += choice.reasoning->count();
  return count;
}

std::string ChatCompletionFormat::echoed_text() const {
  if (!request_.echo) return {};
  const OrderedJson content = request_.messages->back().value("content", OrderedJson());
  return content.is_string() ? content.get<std::string>() : std::string();
}

void ChatCompletionFormat::append_events(int32_t index,
                                         const ChoiceNews& news,
                                         const Usage* usage,
                                         std::string* out) {
  Choice& choice = choices_[index];
  OutputDelta delta = parse(choice, news);
  const bool begins = !std::exchange(choice.has_begun, true);
  const bool ends = news.finish_reason != FinishReason::kNone;
  const bool is_silent = delta.empty() && !request_.logprobs && !request_.return_token_ids;
  if (is_silent && !begins && !ends) return;
  if (begins) delta.content.insert(0, echoed_text());
  *out += "data: " + chunk_head_ + "{\"index\":";
  append_json_integer(out, index);
  *out += ",\"delta\":{";
  if (begins) *out += "\"role\":\"assistant\"";
  const size_t before = out->size();
  append_message(delta, out);
  // A first event says that there is an answer, even if its text is still to come.
  if (begins && out->size() == before) *out += ",\"content\":\"\"";
  if (!begins && out->size() > before) out->erase(before, 1);  // the comma
  *out += "},\"logprobs\":";
  append_logprobs(news, out);
  append_finish(choice, news, out);
  if (request_.return_token_ids) {
    *out += ",\"token_ids\":";
    append_json_integers(out, news.token_ids);
  }
  *out += "}]";
  if (begins && request_.return_token_ids) {
    *out += ",\"prompt_token_ids\":";
    append_json_integers(out, prompt_token_ids_);
  }
  if (usage != nullptr) {
    *out += ",\"usage\":";
    append_usage(out, *usage, num_reasoning_tokens());
  }
  *out += "}\n\n";
}

// Each member with a comma in front.
void ChatCompletionFormat::append_message(const OutputDelta& message, std::string* out) const {
  if (!message.reasoning.empty()) {
    *out += ",\"reasoning\":";
    append_json_string(out, message.reasoning);
    *out += ",\"reasoning_content\":";
    append_json_string(out, message.reasoning);
  }
  if (!message.content.empty()) {
    *out += ",\"content\":";
    append_json_string(out, message.content);
  }
  if (!message.tool_calls.empty()) {
    *out += ",\"tool_calls\":";
    append_tool_calls(message.tool_calls, /*as_pieces=*/true, out);
  }
}

void ChatCompletionFormat::append_logprobs(const ChoiceNews& news, std::string* out) const {
  if (!request_.logprobs) {
    *out += "null";
    return;
  }
  *out += "{\"content\":[";
  append_chat_logprobs(
      news.logprobs, TokenSpelling(tokenizer_.get(), request_.return_tokens_as_token_ids), out);
  *out += "]}";
}

void ChatCompletionFormat::append_finish(const Choice& choice,
                                         const ChoiceNews& news,
                                         std::string* out) const {
  *out += ",\"finish_reason\":";
  if (news.finish_reason == FinishReason::kNone) {
    *out += "null,\"stop_reason\":null";
    return;
  }
  const bool called = news.finish_reason == FinishReason::kStop && choice.parser->has_tool_calls();
  append_json_string(out, called ? "tool_calls" : finish_reason_name(news.finish_reason));
  append_stop_reason(out, news.stop_string, news.stop_token_id, request_.sampling.stop_token_ids);
}

void ChatCompletionFormat::append_usage_event(const Usage& usage, std::string* out) {
  *out += "data: " + chunk_head_ + "],\"usage\":";
  append_usage(out, usage, num_reasoning_tokens());
  *out += "}\n\n";
}

std::string ChatCompletionFormat::body(std::span<const RequestOutput> outputs, const Usage& usage) {
  const RequestOutput& output = outputs.front();
  std::string out = head_;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const ChoiceNews news = all_of(output.outputs[i]);
    OutputDelta message = parse(choices_[i], news);
    message.content.insert(0, echoed_text());
    if (i > 0) out.push_back(',');
    out += "{\"index\":";
    append_json_integer(&out, static_cast<int64_t>(i));
    out += ",\"message\":{\"role\":\"assistant\",\"content\":";
    if (message.content.empty() && !message.tool_calls.empty()) {
      out += "null";
    } else {
      append_json_string(&out, message.content);
    }
    out += ",\"refusal\":null";
    for (const char* name : {",\"reasoning\":", ",\"reasoning_content\":"}) {
      out += name;
      if (message.reasoning.empty()) {
        out += "null";
      } else {
        append_json_string(&out, message.reasoning);
      }
    }
    if (!message.tool_calls.empty()) {
      out += ",\"tool_calls\":";
      append_tool_calls(message.tool_calls, /*as_pieces=*/false, &out);
    }
    out += "},\"logprobs\":";
    append_logprobs(news, &out);
    append_finish(choices_[i], news, &out);
    if (request_.return_token_ids) {
      out += ",\"token_ids\":";
      append_json_integers(&out, news.token_ids);
    }
    out.push_back('}');
  }
  out += "],\"usage\":";
  append_usage(&out, usage, num_reasoning_tokens());
  if (request_.sampling.prompt_logprobs) {
    out += ",\"prompt_logprobs\":";
    append_prompt_logprobs(output.prompt_logprobs, tokenizer_.get(), &out);
  }
  if (request_.return_token_ids) {
    out += ",\"prompt_token_ids\":";
    append_json_integers(&out, prompt_token_ids_);
  }
  out.push_back('}');
  return out;
}

}  // namespace atom::server
