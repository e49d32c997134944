#include "cli/chat_prompt.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "tokenizer/chat_template/find_chat_template.h"
#include "tokenizer/chat_template/prepare_messages.h"

namespace atom::cli {

Result<ChatPrompt> ChatPrompt::create(const LLMEngine* engine, std::string_view kwargs) {
  if (engine->tokenizer() == nullptr) {
    return invalid_argument("a chat needs a tokenizer, and --skip-tokenizer-init is set");
  }
  const ModelSourceConfig& model = engine->config().engine.model;
  ASSIGN_OR_RETURN(const ChatTemplateSource source,
                   load_chat_template(model.model, model.chat_template, /*with_tools=*/false));
  ASSIGN_OR_RETURN(ChatTemplate chat_template, ChatTemplate::parse(source.text, source.origin));
  std::shared_ptr<const OrderedJson> variables;
  if (!kwargs.empty()) {
    ASSIGN_OR_RETURN(OrderedJson parsed, parse_ordered_json(kwargs, "--chat-template-kwargs"));
    if (!parsed.is_object()) {
      return invalid_argument("--chat-template-kwargs: expected a JSON object");
    }
    variables = std::make_shared<const OrderedJson>(std::move(parsed));
  }
  return ChatPrompt(engine, std::move(chat_template), std::move(variables));
}

Result<std::vector<int32_t>> ChatPrompt::render(const std::vector<ChatMessage>& messages) const {
  OrderedJson list = OrderedJson::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  ChatTemplateInput input;
  input.messages = &list;
  input.special_tokens = engine_->tokenizer()->special_tokens();
  input.extra = kwargs_.get();
  ASSIGN_OR_RETURN(const std::string text, render_conversation(template_, input));
  // The template writes the special tokens itself.
  return engine_->tokenize(text, /*add_special_tokens=*/false);
}

}  // namespace atom::cli
