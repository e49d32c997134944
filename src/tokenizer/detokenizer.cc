#include "tokenizer/detokenizer.h"

namespace atom {

IncrementalDetokenizer::IncrementalDetokenizer(std::shared_ptr<const Tokenizer> tokenizer,
                                               bool skip_special_tokens,
                                               std::span<const int32_t> context)
    : tokenizer_(std::move(tokenizer)),
      skip_special_tokens_(skip_special_tokens),
      state_(tokenizer_->decoder().start()) {
  for (const int32_t id : context) append(id);
}

std::string IncrementalDetokenizer::append(int32_t id) {
  std::string text;
  if (const auto token = tokenizer_->token_to_decode(id, skip_special_tokens_)) {
    tokenizer_->decoder().push(*token, &state_, &text);
  }
  return text;
}

std::string IncrementalDetokenizer::finish() {
  std::string text;
  tokenizer_->decoder().finish(&state_, &text);
  return text;
}

}  // namespace atom
