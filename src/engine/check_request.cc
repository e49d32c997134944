#include "engine/check_request.h"

#include <algorithm>

#include "config/context_length.h"

namespace atom {

Status check_request(const ResolvedConfig& config,
                     const std::vector<int32_t>& prompt_token_ids,
                     const SamplingParams& sampling) {
  const int64_t vocab_size = config.model.vocab_size;
  const bool has_tokenizer = !config.engine.model.skip_tokenizer_init;
  RETURN_IF_ERROR(sampling.validate(vocab_size));
  if (!has_tokenizer && !sampling.stop.empty()) {
    return invalid_argument("stop strings need a tokenizer, and skip_tokenizer_init is set");
  }
  if (!has_tokenizer && !sampling.bad_words.empty()) {
    return invalid_argument("bad_words need a tokenizer, and skip_tokenizer_init is set");
  }
  if (!has_tokenizer && !sampling.structural_tag.empty()) {
    return invalid_argument("structured output needs a tokenizer, and skip_tokenizer_init is set");
  }
  if (prompt_token_ids.empty()) return invalid_argument("the prompt is empty");
  for (size_t i = 0; i < prompt_token_ids.size(); ++i) {
    if (prompt_token_ids[i] >= 0 && prompt_token_ids[i] < vocab_size) continue;
    return invalid_argument("prompt token {} is id {}, outside the vocabulary [0, {})",
                            i,
                            prompt_token_ids[i],
                            vocab_size);
  }
  return check_context_length(
      static_cast<int64_t>(prompt_token_ids.size()), sampling.max_tokens, config.max_model_len());
}

std::vector<std::vector<int32_t>> tokens_of_words(const Tokenizer* tokenizer,
                                                  const std::vector<std::string>& words) {
  std::vector<std::vector<int32_t>> sequences;
  for (const std::string& word : words) {
    const size_t begin = std::min(word.find_first_not_of(' '), word.size());
    // At the beginning of a text and behind a space, words mostly have different tokens.
    for (const char* space : {"", " "}) {
      Result<std::vector<int32_t>> ids =
          tokenizer->encode(space + word.substr(begin), /*add_special_tokens=*/false);
      if (ids.ok() && !ids->empty()) sequences.push_back(*std::move(ids));
    }
  }
  std::ranges::sort(sequences);
  sequences.erase(std::unique(sequences.begin(), sequences.end()), sequences.end());
  return sequences;
}

}  // namespace atom
