// What LLMEngine::submit() asks of a request before it is queued. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/resolve.h"
#include "config/sampling_params.h"
#include "tokenizer/tokenizer.h"

namespace atom {

// Whether the engine can serve it: parameters within their ranges, what needs a tokenizer only
// where there is one, ids of the vocabulary, and room for the answer.
Status check_request(const ResolvedConfig& config,
                     const std::vector<int32_t>& prompt_token_ids,
                     const SamplingParams& sampling);

// The token sequences that write bad words, at the beginning of a text and behind a space; sorted,
// each once. `tokenizer` may be null where there are no words.
std::vector<std::vector<int32_t>> tokens_of_words(const Tokenizer* tokenizer,
                                                  const std::vector<std::string>& words);

}  // namespace atom
