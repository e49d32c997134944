// Answers of /v1/chat/completions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/openai/answer_format.h"
#include "server/openai/chat_generation.h"
#include "server/openai/reasoning_counter.h"
#include "server/openai/requests.h"
#include "server/parsers/output_parser.h"
#include "tokenizer/tokenizer.h"

namespace atom::server {

class ChatCompletionFormat final : public AnswerFormat {
 public:
  // The format outlives the object.
  ChatCompletionFormat(const std::string& id,
                       int64_t created,
                       const std::string& fingerprint,
                       PreparedChat chat,
                       const OutputFormat& output_format,
                       uint64_t id_seed);

  void append_events(int32_t choice,
                     const ChoiceNews& news,
                     const Usage* usage,
                     std::string* out) override;
  void append_usage_event(const Usage& usage, std::string* out) override;
  std::string body(std::span<const RequestOutput> outputs, const Usage& usage) override;

 private:
  struct Choice {
    std::unique_ptr<OutputParser> parser;
    std::unique_ptr<ReasoningCounter> reasoning;
    bool has_begun = false;
  };

  // The news as the model's format has it, less what the request does not want.
  OutputDelta parse(Choice& choice, const ChoiceNews& news) const;
  void append_message(const OutputDelta& message, std::string* out) const;
  void append_logprobs(const ChoiceNews& news, std::string* out) const;
  void append_finish(const Choice& choice, const ChoiceNews& news, std::string* out) const;
  std::string echoed_text() const;
  int64_t num_reasoning_tokens() const;

  const ChatCompletionRequest request_;
  const std::string chunk_head_;
  const std::string head_;
  const std::vector<int32_t> prompt_token_ids_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Choice> choices_;
};

}  // namespace atom::server
