// What a request's caller gets back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "config/sampling_params.h"
#include "scheduler/scheduler_output.h"
#include "scheduler/sequence.h"

namespace atom {

using RequestId = uint64_t;

// Text, or the token ids of a text.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

// One of a request's SamplingParams::n answers.
struct CompletionOutput {
  int32_t index = 0;
  std::string text;                     // empty without a tokenizer
  std::vector<int32_t> token_ids;       // the end token included
  std::vector<TokenLogprobs> logprobs;  // one per token when asked for
  FinishReason finish_reason = FinishReason::kNone;
  std::string stop_string;               // the stop string that ended it, if one did
  std::optional<int32_t> stop_token_id;  // the token that ended it, if one did
};

// Seconds of the steady clock.
struct RequestMetrics {
  double arrival = 0;
  double scheduled = 0;    // when its first step was scheduled; 0 until it is known
  double first_token = 0;  // 0 until there is one
  double finished = 0;     // 0 until it is
  int32_t num_cached_tokens = 0;

  double time_to_first_token() const { return first_token - arrival; }
};

struct RequestOutput {
  RequestId id = 0;
  std::vector<int32_t> prompt_token_ids;
  // One per prompt token but the first, when asked for.
  std::vector<TokenLogprobs> prompt_logprobs;
  std::vector<CompletionOutput> outputs;
  bool finished = false;
  Status status;  // an error when the request was refused or failed; outputs hold what came before
  RequestMetrics metrics;
};

// What is new since the last update of a request; `index` says in which of its answers.
struct RequestUpdate {
  int32_t index = 0;
  double time = 0;  // when it came from the core, in seconds of the steady clock
  std::string text;
  std::vector<int32_t> token_ids;
};

}  // namespace atom
