// Conversations in and out: the chat template that makes the prompt, and the format that the
// model's answers are parsed by. Const and thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "engine/llm_engine.h"
#include "server/openai/api_error.h"
#include "server/openai/requests.h"
#include "server/parsers/output_parser.h"
#include "server/server_options.h"
#include "tokenizer/chat_template/chat_template.h"

namespace atom::server {

class ChatFormat {
 public:
  // What create() would say of templates, parsers and variables, without an engine.
  static Status check(const ModelSourceConfig& model, const ServerOptions& options);
  // kNotFound when the model has no chat template and none was given.
  static Result<std::unique_ptr<const ChatFormat>> create(const LLMEngine& engine,
                                                          const ServerOptions& options);

  // The text of the prompt. `gone`: the client is, and nothing more is to be done for it.
  Result<std::string> render(const ChatCompletionRequest& request,
                             const std::atomic<bool>& gone) const;
  Result<std::string> render(const TokenizeRequest& request, const std::atomic<bool>& gone) const;

  const OutputFormat& output_format() const { return *output_format_; }
  // Sets sampling.structural_tag to what the request asks of its answer behind `prompt`, if it asks
  // for anything. False: it asks for what cannot be, and `error` says so.
  bool constrain(const ChatCompletionRequest& request,
                 std::string_view prompt,
                 SamplingParams* sampling,
                 ApiError* error) const;
  // Sets what `sampling` says of thinking, for a budget of so many tokens behind `prompt`. False
  // where reasoning is not told apart.
  bool limit_thinking(int32_t max_tokens, std::string_view prompt, SamplingParams* sampling) const;
  // The special tokens that the format needs in an answer's text, as ids of this model.
  std::vector<int32_t> kept_special_token_ids(bool with_tools) const;

 private:
  // What both kinds of requests give a template.
  struct Conversation {
    const OrderedJson* messages = nullptr;
    const OrderedJson* tools = nullptr;
    const OrderedJson* documents = nullptr;
    const OrderedJson* kwargs = nullptr;  // null: none
    const std::string* chat_template = nullptr;
    bool add_generation_prompt = true;
    bool continue_final_message = false;
  };

  ChatFormat(const LLMEngine& engine,
             ChatTemplate chat_template,
             ChatTemplate tool_template,
             SharedJson default_kwargs,
             std::unique_ptr<OutputFormat> output_format);
  Result<std::string> render(const Conversation& conversation, const std::atomic<bool>& gone) const;
  // Sets the marks of thinking and whether `prompt` ends within it. False as limit_thinking().
  bool mark_thinking(std::string_view prompt, SamplingParams* sampling) const;
  Result<std::string> render_whole(const Conversation& conversation,
                                   const std::atomic<bool>& gone) const;

  const LLMEngine& engine_;
  const ChatTemplate template_;
  const ChatTemplate tool_template_;  // of requests with tools
  const SharedJson default_kwargs_;
  const std::unique_ptr<OutputFormat> output_format_;
};

}  // namespace atom::server
