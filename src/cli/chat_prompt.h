// Conversations as prompts: the checkpoint's chat template, or one from a file.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "engine/llm_engine.h"
#include "tokenizer/chat_template/chat_template.h"

namespace atom::cli {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatPrompt {
 public:
  // `kwargs`: JSON object with further variables of the template, or empty. The engine outlives
  // the object and has a tokenizer.
  static Result<ChatPrompt> create(const LLMEngine* engine, std::string_view kwargs);

  // The token ids of the conversation, up to where the answer begins.
  Result<std::vector<int32_t>> render(const std::vector<ChatMessage>& messages) const;

 private:
  ChatPrompt(const LLMEngine* engine,
             ChatTemplate chat_template,
             std::shared_ptr<const OrderedJson> kwargs)
      : engine_(engine), template_(std::move(chat_template)), kwargs_(std::move(kwargs)) {}

  const LLMEngine* engine_;
  ChatTemplate template_;
  std::shared_ptr<const OrderedJson> kwargs_;  // null: none
};

}  // namespace atom::cli
