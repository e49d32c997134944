// Log-probabilities as a request gets them back: produced by sampling, carried through scheduler
// and engine.
#pragma once

#include <cstdint>
#include <vector>

namespace atom {

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;
  int32_t rank = 0;  // 1 = the most likely token
};

// The chosen token's logprob first, then the top alternatives in order (the chosen one may recur).
using TokenLogprobs = std::vector<TokenLogprob>;

}  // namespace atom
