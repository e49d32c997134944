// Log-probabilities in the three shapes that clients know.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/token_logprobs.h"
#include "tokenizer/tokenizer.h"

namespace atom::server {

// How tokens are named: by their text, or as "token_id:N".
class TokenSpelling {
 public:
  // `tokenizer` outlives this; without one all names are by id.
  TokenSpelling(const Tokenizer* tokenizer, bool by_id)
      : tokenizer_(tokenizer), by_id_(by_id || tokenizer == nullptr) {}

  std::string name(int32_t token_id) const;
  // What the token adds to an answer's text; empty for a special token that is left out, and
  // without a tokenizer.
  std::string text(int32_t token_id, bool skips_special_tokens) const;

 private:
  const Tokenizer* tokenizer_;
  const bool by_id_;
};

// Characters of a text that comes in pieces which may end within one. What is no UTF-8 counts as
// the U+FFFD that stands for it in the text.
class CharacterCounter {
 public:
  // Where a piece begins, in characters: within the character before if it continues that.
  int64_t add(std::string_view piece);
  // The count of all pieces.
  int64_t count() const { return count_ + (pending_.empty() ? 0 : 1); }

 private:
  int64_t count_ = 0;    // complete ones
  std::string pending_;  // the beginning of one
};

// Completions: four arrays, one entry per token.
struct CompletionLogprobs {
  std::string text_offset;
  std::string token_logprobs;
  std::string tokens;
  std::string top_logprobs;
  CharacterCounter characters;  // of the text so far; kept from one piece to the next

  // A prompt's first token has no log-probability: `entries` is then empty. `text`: what the token
  // adds to the text.
  void append(int32_t token_id,
              std::string_view text,
              const TokenLogprobs& entries,
              const TokenSpelling& spelling);
  // {"text_offset": [...], ...}; empties the arrays.
  void flush(std::string* out);
};

// Chat: [{"token", "logprob", "bytes", "top_logprobs": [...]}, ...], without the brackets.
void append_chat_logprobs(std::span<const TokenLogprobs> tokens,
                          const TokenSpelling& spelling,
                          std::string* out);

// vLLM's prompt_logprobs: [null, {"<id>": {"logprob", "rank", "decoded_token"}, ...}, ...]; no
// token is decoded without a tokenizer.
void append_prompt_logprobs(std::span<const TokenLogprobs> tokens,
                            const Tokenizer* tokenizer,
                            std::string* out);

}  // namespace atom::server
