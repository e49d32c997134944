// GET /tokenizer_info: what tokenizer_config.json says, for clients that render or tokenize alike.
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "server/endpoint.h"
#include "tokenizer/chat_template/find_chat_template.h"

namespace atom::server {
namespace {

constexpr std::string_view kTokenizerInfoAnswerSchemas = R"json(
"TokenizerInfo": {
  "type": "object",
  "required": ["tokenizer_class"],
  "properties": {
    "tokenizer_class": {"type": "string"},
    "chat_template": {"type": ["string", "array", "null"]}
  }
}
)json";

Result<OrderedJson> tokenizer_config(const ModelSourceConfig& model) {
  constexpr size_t kMaxBytes = size_t{16} << 20;
  const std::string folder = model.tokenizer.empty() ? model.model : model.tokenizer;
  const std::string path = folder + "/tokenizer_config.json";
  OrderedJson config = OrderedJson::object();
  if (file_exists(path)) {
    ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
    ASSIGN_OR_RETURN(config, parse_ordered_json(text, "tokenizer_config.json"));
    if (!config.is_object()) return internal_error("tokenizer_config.json is not an object");
  }
  if (!config.contains("tokenizer_class")) config["tokenizer_class"] = "PreTrainedTokenizerFast";
  const Result<ChatTemplateSource> chat =
      load_chat_template(model.model, model.chat_template, /*with_tools=*/false);
  if (chat.ok()) config["chat_template"] = chat->text;
  return config;
}

void tokenizer_info(ServerContext* context, const ExchangePtr& exchange) {
  if (context->engine.tokenizer() == nullptr) {
    return respond_error(exchange, not_found("the server runs without a tokenizer"));
  }
  const Result<OrderedJson> config = tokenizer_config(context->engine.config().engine.model);
  if (!config.ok()) return respond_error(exchange, config.status());
  respond_json(exchange, config->dump());
}

}  // namespace

constinit const Endpoint kTokenizerInfo{tokenizer_info,
                                        {.id = "get_tokenizer_info",
                                         .summary = "The checkpoint's tokenizer_config.json.",
                                         .answer = "TokenizerInfo",
                                         .answer_schemas = kTokenizerInfoAnswerSchemas}};

}  // namespace atom::server
