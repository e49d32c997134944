// Prompts of a file. Files are input from outside: sizes are bounded, and an error names the file
// and the line or what else is wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench_serve/prompt.h"
#include "bench_serve/random.h"

namespace atom::bench_serve {

struct PromptFileOptions {
  std::string path;
  size_t count = 0;
  int32_t output_len = 0;            // instead of the file's; 0: the file's
  int32_t default_output_len = 128;  // where the file has none
  bool shuffle = true;
  // Counts or estimates the tokens of a text.
  std::function<int32_t(const std::string&)> count_tokens;
};

// A ShareGPT-style file: an array of objects with "conversations" ({"from", "value"}) or "messages"
// ({"role", "content"}). The first turn is the prompt, the second gives the length of the answer.
// Conversations with a turn of less than 4 tokens, a prompt of over 1024 or 2048 in all are left
// out.
Result<std::vector<Prompt>> load_sharegpt(const PromptFileOptions& options, Random* random);

// Lines, empty ones left out: each a prompt, or a JSON object with "prompt" (text or token ids) or
// "messages", and perhaps "output_tokens", "output_len" or "max_tokens".
Result<std::vector<Prompt>> load_prompt_lines(const PromptFileOptions& options, Random* random);

}  // namespace atom::bench_serve
