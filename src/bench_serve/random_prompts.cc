#include "bench_serve/random_prompts.h"

#include <algorithm>
#include <cmath>

#include "bench_serve/words.h"

namespace atom::bench_serve {
namespace {

size_t words_for(const PromptMaterial& material, double num_tokens) {
  return static_cast<size_t>(std::max(1.0, std::round(num_tokens / material.tokens_per_word)));
}

std::vector<int32_t> random_ids(const PromptMaterial& material, int32_t count, Random* random) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = material.token_ids[random->index(material.token_ids.size())];
  return ids;
}

int32_t count_tokens(const PromptMaterial& material, const std::string& text) {
  const Result<std::vector<int32_t>> ids = material.tokenizer->encode(text, false);
  return ids.ok() ? static_cast<int32_t>(ids->size()) : 0;
}

// Adds and removes words at the end of `text`, behind its first `fixed_size` bytes, until it has
// `length` tokens, or the nearest that a few rounds find. Returns how many it has.
int32_t fit_length(const PromptMaterial& material,
                   int32_t length,
                   size_t fixed_size,
                   Random* random,
                   std::string* text) {
  constexpr int kRounds = 8;
  int32_t count = count_tokens(material, *text);
  for (int round = 0; round < kRounds && count != length; ++round) {
    if (count < length) {
      *text += ' ';
      *text += random_words(static_cast<size_t>(length - count), random);
    }
    for (int32_t i = length; i < count; ++i) {
      const size_t space = text->rfind(' ');
      if (space == std::string::npos || space < fixed_size) break;
      text->resize(space);
    }
    count = count_tokens(material, *text);
  }
  return count;
}

}  // namespace

std::string random_words(size_t count, Random* random) {
  const auto words = common_words();
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += words[random->index(words.size())];
  }
  return text;
}

std::vector<Prompt> make_random_prompts(const RandomPromptOptions& options,
                                        const PromptMaterial& material,
                                        Random* random) {
  const bool uses_ids = !material.token_ids.empty();
  std::vector<Prompt> prefixes;
  if (options.prefix_len > 0) prefixes.resize(static_cast<size_t>(options.num_prefixes));
  for (Prompt& prefix : prefixes) {
    if (uses_ids) {
      prefix.token_ids = random_ids(material, options.prefix_len, random);
    } else {
      prefix.text = random_words(words_for(material, options.prefix_len), random) + ' ';
    }
  }
  std::vector<Prompt> prompts(options.count);
  for (size_t i = 0; i < prompts.size(); ++i) {
    Prompt& prompt = prompts[i];
    if (!prefixes.empty()) prompt = prefixes[i % prefixes.size()];
    const int32_t input_len = options.input_len.sample(random);
    prompt.prompt_len = input_len + options.prefix_len;
    prompt.output_len = options.output_len.sample(random);
    if (uses_ids) {
      const std::vector<int32_t> ids = random_ids(material, input_len, random);
      prompt.token_ids.insert(prompt.token_ids.end(), ids.begin(), ids.end());
      continue;
    }
    const size_t fixed_size = prompt.text.size();
    // What the server adds is part of the length.
    prompt.text += random_words(words_for(material, input_len - material.tokens_around), random);
    if (material.tokenizer != nullptr) {
      prompt.prompt_len = fit_length(material, prompt.prompt_len, fixed_size, random, &prompt.text);
    }
  }
  return prompts;
}

}  // namespace atom::bench_serve
