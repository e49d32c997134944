#include "bench_serve/request_body.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace atom::bench_serve {

Result<BodyWriter> BodyWriter::create(const BodyOptions& options) {
  Json body = Json::object();
  body["model"] = options.model;
  body["stream"] = options.stream;
  if (options.stream && options.include_usage) body["stream_options"] = {{"include_usage", true}};
  if (options.ignore_eos) body["ignore_eos"] = true;
  if (options.temperature) body["temperature"] = *options.temperature;
  if (!options.extra_body.empty()) {
    ASSIGN_OR_RETURN(const Json extra, parse_json(options.extra_body, "the extra body"));
    if (!extra.is_object()) return invalid_argument("the extra body is no JSON object");
    body.update(extra);
  }
  BodyWriter writer;
  writer.options_ = options;
  writer.common_ = std::make_shared<const Json>(std::move(body));
  return writer;
}

Result<std::string> BodyWriter::write(const Prompt& prompt) const {
  Json body = *common_;
  if (!body.contains(options_.max_tokens_name)) {
    body[options_.max_tokens_name] = prompt.output_len;
  }
  const bool is_chat = options_.kind == EndpointKind::kChat;
  if (!prompt.messages_json.empty()) {
    if (!is_chat) return invalid_argument("messages need the chat endpoint");
    ASSIGN_OR_RETURN(body["messages"], parse_json(prompt.messages_json, "messages"));
  } else if (!prompt.token_ids.empty()) {
    if (is_chat) return invalid_argument("token ids need the completions endpoint");
    body["prompt"] = prompt.token_ids;
  } else if (is_chat) {
    body["messages"] = Json::array({{{"role", "user"}, {"content", prompt.text}}});
  } else {
    body["prompt"] = prompt.text;
  }
  return json_text(body);
}

}  // namespace atom::bench_serve
