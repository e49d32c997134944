// Test support: random requests to a runner, and what comes back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "config/sampling_params.h"
#include "config/token_logprobs.h"
#include "structured_output/compiled_grammar.h"

namespace atom {

struct Request {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  bool aborts = false;  // once it has a token
  std::shared_ptr<const CompiledGrammar> grammar = {};
};

// Token ids that prompts are made of.
struct IdRange {
  int32_t first = 100;
  int32_t count = 4000;

  int32_t draw(std::mt19937& random) const {
    return first + static_cast<int32_t>(random() % static_cast<uint32_t>(count));
  }
};

struct Answer {
  std::vector<int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;
  std::string error;
  bool finished = false;
};

inline SamplingParams random_sampling(std::mt19937& random) {
  SamplingParams params;
  params.seed = random();
  params.max_tokens = 1 + static_cast<int32_t>(random() % 64);
  params.temperature = random() % 2 == 0 ? 0.0f : 0.9f;
  if (random() % 4 == 0) params.top_k = 20;
  if (random() % 4 == 0) params.top_p = 0.9f;
  if (random() % 4 == 0) params.min_p = 0.02f;
  if (random() % 3 == 0) params.repetition_penalty = 1.3f;
  if (random() % 3 == 0) params.frequency_penalty = 0.5f;
  if (random() % 4 == 0) params.logit_bias = {{20, 4.0f}, {15, -100.0f}};
  if (random() % 4 == 0) params.min_tokens = std::min(params.max_tokens, 10);
  params.ignore_eos = random() % 2 == 0;
  if (random() % 3 == 0) params.logprobs = static_cast<int32_t>(random() % 6);
  if (random() % 8 == 0) params.prompt_logprobs = 2;
  return params;
}

// Prompts that share beginnings, so that later ones find blocks of earlier ones.
inline std::vector<Request> random_requests(size_t count, std::mt19937& random, IdRange ids = {}) {
  std::vector<std::vector<int32_t>> stems(4, std::vector<int32_t>(100));
  for (std::vector<int32_t>& stem : stems) {
    for (int32_t& id : stem) id = ids.draw(random);
  }
  std::vector<Request> requests(count);
  for (Request& request : requests) {
    const std::vector<int32_t>& stem = stems[random() % stems.size()];
    request.prompt.assign(stem.begin(), stem.begin() + static_cast<int>(1 + random() % 99));
    request.prompt.push_back(ids.draw(random));
    request.sampling = random_sampling(random);
    request.aborts = random() % 10 == 0;
  }
  return requests;
}

}  // namespace atom
