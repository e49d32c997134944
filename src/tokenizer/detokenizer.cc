#include "tokenizer/detokenizer.h"

#include <algorithm>
#include <utility>

namespace atom {

IncrementalDetokenizer::IncrementalDetokenizer(std::shared_ptr<const Tokenizer> tokenizer,
                                               bool skip_special_tokens,
                                               std::span<const int32_t> context,
                                               std::vector<int32_t> kept_special_ids)
    : tokenizer_(std::move(tokenizer)),
      skip_special_tokens_(skip_special_tokens),
      kept_special_ids_(std::move(kept_special_ids)),
      state_(tokenizer_->decoder().start()) {
  for (const int32_t id : context) append(id);
}

std::string IncrementalDetokenizer::append(int32_t id) {
  std::string text;
  const bool is_kept =
      std::find(kept_special_ids_.begin(), kept_special_ids_.end(), id) != kept_special_ids_.end();
  if (const auto token = tokenizer_->token_to_decode(id, skip_special_tokens_ && !is_kept)) {
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
