#include "config/context_length.h"

namespace atom {

Status check_context_length(int64_t num_prompt_tokens, int64_t max_tokens, int64_t max_model_len) {
  const int64_t min_answer = max_tokens > 0 ? 1 : 0;
  if (num_prompt_tokens + min_answer <= max_model_len) return {};
  return invalid_argument(
      "the prompt has {} tokens and leaves no room for an answer: the model's limit is {} tokens, "
      "prompt and answer together",
      num_prompt_tokens,
      max_model_len);
}

}  // namespace atom
