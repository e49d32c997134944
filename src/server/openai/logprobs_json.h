// Log-probabilities in the three shapes that clients know.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/token_logprobs.h"
#include "tokenizer/tokenizer.h"

namespace atom::server {

// Completions: four arrays, one entry per token.
struct CompletionLogprobs {
  std::string text_offset;
  std::string token_logprobs;
  std::string tokens;
  std::string top_logprobs;
  int64_t offset = 0;  // characters of text so far; kept from one piece to the next

  // A prompt's first token has no log-probability: `entries` is then empty.
  void append(int32_t token_id, const TokenLogprobs& entries, const Tokenizer& tokenizer);
  // {"text_offset": [...], ...}; empties the arrays.
  void flush(std::string* out);
};

// Chat: [{"token", "logprob", "bytes", "top_logprobs": [...]}, ...], without the brackets.
void append_chat_logprobs(std::span<const TokenLogprobs> tokens,
                          const Tokenizer& tokenizer,
                          std::string* out);

// vLLM's prompt_logprobs: [null, {"<id>": {"logprob", "rank", "decoded_token"}, ...}, ...].
void append_prompt_logprobs(std::span<const TokenLogprobs> tokens,
                            const Tokenizer& tokenizer,
                            std::string* out);

}  // namespace atom::server
