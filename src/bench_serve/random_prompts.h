// Prompts without meaning, of chosen lengths, some of them with the same beginning.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench_serve/length_distribution.h"
#include "bench_serve/prompt.h"
#include "bench_serve/random.h"
#include "tokenizer/tokenizer.h"

namespace atom::bench_serve {

// What the prompts are made of. With token ids they have the lengths asked for; words are counted
// with the tokenizer, or else estimated.
struct PromptMaterial {
  std::vector<int32_t> token_ids;              // to choose from; empty: words are used
  std::shared_ptr<const Tokenizer> tokenizer;  // for words; may be null
  double tokens_per_word = 1;
  double tokens_around = 0;  // that the server puts around the words: BOS, a chat template
};

struct RandomPromptOptions {
  size_t count = 0;
  LengthDistribution input_len = LengthDistribution::fixed(1024);  // behind the prefix
  LengthDistribution output_len = LengthDistribution::fixed(128);
  int32_t prefix_len = 0;  // tokens that prompts with the same prefix begin with
  int32_t num_prefixes = 1;
};

// Prompt i has prefix i modulo num_prefixes.
std::vector<Prompt> make_random_prompts(const RandomPromptOptions& options,
                                        const PromptMaterial& material,
                                        Random* random);

// `count` random words, each behind a space but the first.
std::string random_words(size_t count, Random* random);

}  // namespace atom::bench_serve
