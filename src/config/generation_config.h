// What generation_config.json of a model folder says. As in vLLM, six of its values become the
// defaults of requests that do not set them, and do_sample is ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "config/engine_config.h"
#include "config/sampling_params.h"

namespace atom {

struct GenerationConfig {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<int32_t> max_new_tokens;
  std::optional<bool> do_sample;  // for the commands that people use at a terminal

  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // all of them end an answer
  std::optional<int32_t> pad_token_id;

  // Overwrites what the file sets; to be called before the request's own values are applied.
  void apply_to(SamplingParams* params) const;
};

// Ids must be below vocab_size.
Result<GenerationConfig> parse_generation_config(const Json& json, int64_t vocab_size);
// Nothing set when the folder has no such file.
Result<GenerationConfig> load_generation_config(const std::string& folder, int64_t vocab_size);
// As --generation-config and --override-generation-config say. Which tokens begin and end a text
// is always what the checkpoint's own file says.
Result<GenerationConfig> load_generation_config(const ModelSourceConfig& source,
                                                int64_t vocab_size);

}  // namespace atom
