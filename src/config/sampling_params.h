// How a request wants its tokens chosen. Names and meanings follow vLLM's SamplingParams;
// sampling_fields.def describes the members. A value type; validate() is called once where a
// request enters, after that every field is in range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/sampling_rules.h"

namespace atom {

struct SamplingParams {
  static constexpr int kMaxLogprobs = 64;
  static constexpr int kMaxN = 128;
  // The work a request may ask for per generated token stays bounded.
  static constexpr size_t kMaxStopStrings = 64;
  static constexpr size_t kMaxStopTokenIds = 256;
  static constexpr size_t kMaxAllowedTokenIds = 65536;
  static constexpr size_t kMaxKeptTokenIds = 1024;
  static constexpr size_t kMaxLogitBias = 1024;
  static constexpr size_t kMaxBadWords = 256;
  static constexpr size_t kMaxBadWordTokens = 1100;  // of 256 characters and a space
  static constexpr size_t kMaxThinkingMark = 64;     // tokens
  static constexpr size_t kMaxStructuralTag = 512 << 10;
  static constexpr float kMinRepetitionPenalty = 1e-6f;  // logits divided by less overflow

#define SAMPLING_FIELD(type, name, initial, rule, takers, help) type name = initial;
#include "config/sampling_fields.def"
#undef SAMPLING_FIELD

  // An error names the field, its value and the range. vocab_size bounds the token ids.
  Status validate(int64_t vocab_size) const;

  bool is_greedy() const {
    return temperature == 0.0f;
  }
  // Which tokens may come next depends on the values of all before.
  bool needs_known_tokens() const {
    return !bad_word_ids.empty() || max_thinking_tokens.has_value();
  }
  bool has_penalties() const {
    return presence_penalty != 0.0f || frequency_penalty != 0.0f || repetition_penalty != 1.0f;
  }
};

}  // namespace atom
