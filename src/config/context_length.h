// Whether a prompt leaves room for its answer: the front end asks before it takes a request, the
// engine's process once more.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace atom {

// `max_tokens`: of the answer; 0 only scores the prompt and needs no room. The answer is cut to
// what is left.
Status check_context_length(int64_t num_prompt_tokens, int64_t max_tokens, int64_t max_model_len);

}  // namespace atom
