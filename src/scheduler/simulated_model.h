// Test support: a model whose next token is a function of the salt, of all tokens before it and of
// the request.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/sampling_params.h"
#include "scheduler/sequence.h"

namespace atom::simulated_model {

uint64_t start(const std::string& salt);
uint64_t extend(uint64_t prefix_hash, int32_t token_id);
// End tokens are the model's eos and the request's stop tokens; masked where they may not come yet.
int32_t next_token(uint64_t prefix_hash,
                   const SamplingParams& sampling,
                   const std::vector<int32_t>& eos_token_ids,
                   int32_t num_outputs,
                   int32_t vocab_size);

// All outputs of a request whose max_tokens is at most what the model has room for, with nothing
// shared, batched, preempted or ahead; and why they end.
std::pair<std::vector<int32_t>, FinishReason> whole_answer(
    const std::vector<int32_t>& prompt,
    const SamplingParams& sampling,
    const std::vector<int32_t>& eos_token_ids,
    int32_t vocab_size);

}  // namespace atom::simulated_model
