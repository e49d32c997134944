// Answers of /v1/completions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/openai/answer_format.h"
#include "server/openai/logprobs_json.h"
#include "server/openai/requests.h"

namespace atom::server {

struct CompletionPrompt {
  std::string text;  // for echo
  std::vector<int32_t> token_ids;
};

class CompletionFormat final : public AnswerFormat {
 public:
  // The tokenizer outlives the format.
  CompletionFormat(const std::string& id,
                   int64_t created,
                   const std::string& model,
                   const std::string& fingerprint,
                   CompletionRequest&& request,
                   std::vector<CompletionPrompt> prompts,
                   const Tokenizer* tokenizer);

  int32_t num_prompt_copies() const override { return request_.echo ? request_.sampling.n : 1; }
  void append_events(int32_t choice,
                     const ChoiceNews& news,
                     const Usage* usage,
                     std::string* out) override;
  void append_usage_event(const Usage& usage, std::string* out) override;
  std::string body(std::span<const RequestOutput> outputs, const Usage& usage) override;

 private:
  struct Choice {
    CompletionLogprobs logprobs;
    bool has_begun = false;
  };

  void append_choice(int32_t index, const ChoiceNews& news, std::string* out);
  void append_logprobs(Choice& choice,
                       const CompletionPrompt& prompt,
                       const ChoiceNews& news,
                       std::string* out) const;

  const CompletionRequest request_;
  const std::vector<CompletionPrompt> prompts_;
  const std::string head_;
  const Tokenizer* tokenizer_;
  const TokenSpelling spelling_;
  std::vector<Choice> choices_;
};

}  // namespace atom::server
