// How a request wants its tokens chosen. Names and meanings follow vLLM's SamplingParams. A value
// type; validate() is called once where a request enters, after that every field is in range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace atom {

struct SamplingParams {
  static constexpr int kMaxLogprobs = 64;
  static constexpr int kMaxN = 128;
  // The work a request may ask for per generated token stays bounded.
  static constexpr size_t kMaxStopStrings = 64;
  static constexpr size_t kMaxStopTokenIds = 256;
  static constexpr size_t kMaxLogitBias = 1024;
  static constexpr float kMinRepetitionPenalty = 1e-6f;  // logits divided by less overflow

  int32_t n = 1;                   // answers per prompt, [1, kMaxN]
  float temperature = 1.0f;        // [0, 100]; 0 = greedy
  float top_p = 1.0f;              // (0, 1]; 1 = off
  int32_t top_k = 0;               // 0 or -1 = off
  float min_p = 0.0f;              // [0, 1]; 0 = off
  float presence_penalty = 0.0f;   // [-2, 2], on generated tokens
  float frequency_penalty = 0.0f;  // [-2, 2], on generated tokens
  float repetition_penalty =
      1.0f;  // [kMinRepetitionPenalty, 100], on prompt and generated tokens; 1 = off
  std::vector<std::pair<int32_t, float>> logit_bias;  // (token id, bias in [-100, 100])
  std::optional<uint64_t> seed;                       // none: drawn when the request enters
  int32_t max_tokens = 16;                            // [0, ...]; 0 only scores the prompt
  int32_t min_tokens = 0;                             // no end token before so many were generated
  std::vector<std::string> stop;                      // stop strings, each non-empty
  std::vector<int32_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  std::vector<int32_t> kept_special_token_ids;  // in the text in spite of skip_special_tokens
  std::optional<int32_t> logprobs;  // top alternatives per generated token, [0, kMaxLogprobs]
  std::optional<int32_t> prompt_logprobs;  // the same for each prompt token but the first
  int32_t priority = 0;                    // lower runs earlier under the priority policy
  std::string cache_salt;                  // prefix-cache blocks are shared only within one salt

  // An error names the field, its value and the range. vocab_size bounds the token ids.
  Status validate(int64_t vocab_size) const;

  bool is_greedy() const { return temperature == 0.0f; }
  bool has_penalties() const {
    return presence_penalty != 0.0f || frequency_penalty != 0.0f || repetition_penalty != 1.0f;
  }
};

}  // namespace atom
