#include "server/anthropic/messages_format.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/llm_engine.h"
#include "server/json_text.h"

namespace atom::server {
namespace {

void append_event(const char* name, std::string_view data, std::string* out) {
  *out += "event: ";
  *out += name;
  *out += "\ndata: ";
  *out += data;
  *out += "\n\n";
}

// Tokens that were not cached are the input, as Anthropic counts.
void append_messages_usage(std::string* out, const Usage& usage) {
  *out += "{\"input_tokens\":";
  const int64_t cached = usage.cached_tokens.value_or(0);
  append_json_integer(out, usage.prompt_tokens - cached);
  *out += ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":";
  append_json_integer(out, cached);
  *out += ",\"output_tokens\":";
  append_json_integer(out, usage.completion_tokens);
  out->push_back('}');
}

// The arguments of a call, an empty object when the answer ended within them.
std::string complete_object(const std::string& text) {
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? text : "{}";
}

const char* error_type(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

std::string messages_error_json(const ApiError& error) {
  std::string json = "{\"type\":\"error\",\"error\":{\"type\":";
  append_json_string(&json, error_type(error.http_status));
  json += ",\"message\":";
  append_json_string(&json, error.message);
  json += "}}";
  return json;
}

MessagesFormat::MessagesFormat(const std::string& id,
                               PreparedChat chat,
                               const OutputFormat& output_format)
    : id_(id),
      model_(std::move(chat.model)),
      request_(std::move(chat.request)),
      num_prompt_tokens_(static_cast<int64_t>(chat.prompt.token_ids.size())),
      parser_(make_answer_parser(
          output_format, chat.prompt.text, request_, std::hash<std::string>()(id))) {}

void MessagesFormat::append_head(std::string* out) const {
  *out += "{\"id\":";
  append_json_string(out, id_);
  *out += ",\"type\":\"message\",\"role\":\"assistant\",\"model\":";
  append_json_string(out, model_);
  *out += ",\"content\":[";
}

void MessagesFormat::begin_message(std::string* out) {
  if (std::exchange(has_begun_, true)) return;
  std::string data = "{\"type\":\"message_start\",\"message\":";
  append_head(&data);
  data += "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":";
  Usage usage;
  usage.prompt_tokens = num_prompt_tokens_;
  append_messages_usage(&data, usage);
  data += "}}";
  append_event("message_start", data, out);
}

void MessagesFormat::begin_block(Block block, const ToolCallDelta* call, std::string* out) {
  end_block(out);
  open_ = block;
  std::string data = "{\"type\":\"content_block_start\",\"index\":";
  append_json_integer(&data, num_blocks_++);
  data += ",\"content_block\":";
  if (block == Block::kThinking) {
    data += "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}";
  } else if (block == Block::kText) {
    data += "{\"type\":\"text\",\"text\":\"\"}";
  } else {
    open_call_ = call->index;
    data += "{\"type\":\"tool_use\",\"id\":";
    append_json_string(&data, call->id);
    data += ",\"name\":";
    append_json_string(&data, call->name);
    data += ",\"input\":{}}";
  }
  data.push_back('}');
  append_event("content_block_start", data, out);
}

void MessagesFormat::end_block(std::string* out) {
  if (std::exchange(open_, Block::kNone) == Block::kNone) return;
  std::string data = "{\"type\":\"content_block_stop\",\"index\":";
  append_json_integer(&data, num_blocks_ - 1);
  data.push_back('}');
  append_event("content_block_stop", data, out);
}

void MessagesFormat::append_delta(const char* type,
                                  const char* member,
                                  std::string_view text,
                                  std::string* out) {
  std::string data = "{\"type\":\"content_block_delta\",\"index\":";
  append_json_integer(&data, num_blocks_ - 1);
  data += ",\"delta\":{\"type\":\"";
  data += type;
  data += "\",\"";
  data += member;
  data += "\":";
  append_json_string(&data, text);
  data += "}}";
  append_event("content_block_delta", data, out);
}

void MessagesFormat::note_stop(const ChoiceNews& news) {
  if (news.finish_reason == FinishReason::kLength) {
    stop_reason_ = "max_tokens";
  } else if (parser_->has_tool_calls()) {
    stop_reason_ = "tool_use";
  } else if (!news.stop_string.empty()) {
    stop_reason_ = "stop_sequence";
    stop_sequence_ = news.stop_string;
  } else {
    stop_reason_ = "end_turn";
  }
}

void MessagesFormat::append_events(int32_t,
                                   const ChoiceNews& news,
                                   const Usage*,
                                   std::string* out) {
  begin_message(out);
  const OutputDelta delta = parse_news(*parser_, request_, news);
  if (!delta.reasoning.empty()) {
    if (open_ != Block::kThinking) begin_block(Block::kThinking, nullptr, out);
    append_delta("thinking_delta", "thinking", delta.reasoning, out);
  }
  if (!delta.content.empty()) {
    if (open_ != Block::kText) begin_block(Block::kText, nullptr, out);
    append_delta("text_delta", "text", delta.content, out);
  }
  for (const ToolCallDelta& call : delta.tool_calls) {
    if (open_ != Block::kToolUse || open_call_ != call.index) {
      begin_block(Block::kToolUse, &call, out);
    }
    if (!call.arguments.empty()) {
      append_delta("input_json_delta", "partial_json", call.arguments, out);
    }
  }
  if (news.finish_reason == FinishReason::kNone) return;
  if (num_blocks_ == 0) begin_block(Block::kText, nullptr, out);
  end_block(out);
  note_stop(news);
}

void MessagesFormat::append_stop(std::string* out) const {
  *out += "\"stop_reason\":";
  append_json_string(out, stop_reason_);
  *out += ",\"stop_sequence\":";
  if (stop_sequence_.empty()) {
    *out += "null";
  } else {
    append_json_string(out, stop_sequence_);
  }
}

void MessagesFormat::append_usage_event(const Usage& usage, std::string* out) {
  std::string data = "{\"type\":\"message_delta\",\"delta\":{";
  append_stop(&data);
  data += "},\"usage\":";
  append_messages_usage(&data, usage);
  data.push_back('}');
  append_event("message_delta", data, out);
}

void MessagesFormat::append_end(std::string* out) {
  append_event("message_stop", "{\"type\":\"message_stop\"}", out);
}

void MessagesFormat::append_error(const ApiError& error, std::string* out) {
  append_event("error", messages_error_json(error), out);
}

std::string MessagesFormat::body(std::span<const RequestOutput> outputs, const Usage& usage) {
  const ChoiceNews news = all_of(outputs.front().outputs.front());
  const OutputDelta message = parse_news(*parser_, request_, news);
  note_stop(news);
  std::string out;
  append_head(&out);
  const auto separate = [&] {
    if (num_blocks_++ > 0) out.push_back(',');
  };
  if (!message.reasoning.empty()) {
    separate();
    out += "{\"type\":\"thinking\",\"thinking\":";
    append_json_string(&out, message.reasoning);
    out += ",\"signature\":\"\"}";
  }
  if (!message.content.empty() || message.tool_calls.empty()) {
    separate();
    out += "{\"type\":\"text\",\"text\":";
    append_json_string(&out, message.content);
    out.push_back('}');
  }
  for (const ToolCallDelta& call : message.tool_calls) {
    separate();
    out += "{\"type\":\"tool_use\",\"id\":";
    append_json_string(&out, call.id);
    out += ",\"name\":";
    append_json_string(&out, call.name);
    out += ",\"input\":" + complete_object(call.arguments) + "}";
  }
  out += "],";
  append_stop(&out);
  out += ",\"usage\":";
  append_messages_usage(&out, usage);
  out.push_back('}');
  return out;
}

}  // namespace atom::server
