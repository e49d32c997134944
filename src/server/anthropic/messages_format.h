// Answers of Anthropic's Messages API: a list of blocks of thoughts, text and calls.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/openai/answer_format.h"
#include "server/openai/chat_generation.h"

namespace atom::server {

class MessagesFormat final : public AnswerFormat {
 public:
  // `id`: of the message. The output format outlives this.
  MessagesFormat(const std::string& id, PreparedChat chat, const OutputFormat& output_format);

  void append_events(int32_t choice,
                     const ChoiceNews& news,
                     const Usage* usage,
                     std::string* out) override;
  // What ends the message: why it stopped, and the usage.
  void append_usage_event(const Usage& usage, std::string* out) override;
  void append_end(std::string* out) override;
  void append_error(const ApiError& error, std::string* out) override;
  std::string body(std::span<const RequestOutput> outputs, const Usage& usage) override;

 private:
  enum class Block { kNone, kThinking, kText, kToolUse };

  void begin_message(std::string* out);
  void begin_block(Block block, const ToolCallDelta* call, std::string* out);
  void end_block(std::string* out);
  void append_delta(const char* type, const char* member, std::string_view text, std::string* out);
  void append_head(std::string* out) const;
  void append_stop(std::string* out) const;
  void note_stop(const ChoiceNews& news);

  const std::string id_;
  const std::string model_;
  const ChatCompletionRequest request_;
  const int64_t num_prompt_tokens_;
  const std::unique_ptr<OutputParser> parser_;
  bool has_begun_ = false;
  Block open_ = Block::kNone;
  int32_t num_blocks_ = 0;
  int32_t open_call_ = -1;  // index of the call whose block is open
  std::string stop_reason_;
  std::string stop_sequence_;  // empty: none
};

// {"type":"error","error":{"type","message"}}
std::string messages_error_json(const ApiError& error);

}  // namespace atom::server
