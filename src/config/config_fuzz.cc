// config.json and generation_config.json from anywhere: never a crash, and what is accepted keeps
// its promises.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "config/eplb_config.h"
#include "config/generation_config.h"
#include "config/model_config.h"

using namespace atom;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Json> json = parse_json(text, "fuzz");
  if (!json.ok()) return 0;
  for (SlidingWindowRule rule : {SlidingWindowRule::kNone, SlidingWindowRule::kUseSlidingWindow}) {
    ModelConfigDefaults defaults;
    defaults.sliding_window_rule = rule;
    const Result<ModelConfig> config = parse_model_config(*json, defaults);
    if (!config.ok()) continue;
    CHECK(config->num_attention_heads % config->num_key_value_heads == 0);
    CHECK(config->layer_types.size() == static_cast<size_t>(config->num_hidden_layers));
    CHECK(config->rope.rotary_dim <= config->head_dim);
    CHECK(config->rope.rotary_dim % 2 == 0);
    CHECK(config->rope.theta > 1);
    CHECK(config->rms_norm_eps >= 0);
    for (int32_t id : config->eos_token_ids) CHECK(id < config->vocab_size);
  }
  EplbConfig eplb;
  eplb.enabled = true;
  eplb.json = text;
  if (const Result<EplbConfig> read = resolve_eplb(eplb); read.ok()) {
    CHECK(read->load_window_size >= 1);
    CHECK(read->load_window_size <= read->rebalance_interval);
  }
  const Result<GenerationConfig> generation = parse_generation_config(*json, 1000);
  if (generation.ok()) {
    SamplingParams params;
    generation->apply_to(&params);
    CHECK(params.validate(1000).ok());
  }
  return 0;
}
