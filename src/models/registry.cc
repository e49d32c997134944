#include "models/registry.h"

#include <nlohmann/json.hpp>

namespace atom {

// One factory per file of this folder.
Result<std::unique_ptr<CausalLM>> make_deepseek_v2(BuildContext& build);
Result<std::unique_ptr<CausalLM>> make_deepseek_v3(BuildContext& build);
Result<std::unique_ptr<DraftModel>> make_deepseek_v3_mtp(BuildContext& build,
                                                         const CausalLM& target);
Result<std::unique_ptr<CausalLM>> make_deepseek_v32(BuildContext& build);
Result<std::unique_ptr<DraftModel>> make_deepseek_v32_mtp(BuildContext& build,
                                                          const CausalLM& target);
Result<std::unique_ptr<CausalLM>> make_glm4_moe(BuildContext& build);
Result<std::unique_ptr<DraftModel>> make_glm4_moe_mtp(BuildContext& build, const CausalLM& target);
Result<std::unique_ptr<CausalLM>> make_glm_moe_dsa(BuildContext& build);
Result<std::unique_ptr<DraftModel>> make_glm_moe_dsa_mtp(BuildContext& build,
                                                         const CausalLM& target);
Result<std::unique_ptr<CausalLM>> make_gpt_oss(BuildContext& build);
Result<std::unique_ptr<CausalLM>> make_llama(BuildContext& build);
Result<std::unique_ptr<CausalLM>> make_mixtral(BuildContext& build);
Result<std::unique_ptr<CausalLM>> make_qwen3(BuildContext& build);
Result<std::unique_ptr<CausalLM>> make_qwen3_5(BuildContext& build);
Result<std::unique_ptr<DraftModel>> make_qwen3_5_mtp(BuildContext& build, const CausalLM& target);
Result<std::unique_ptr<CausalLM>> make_qwen3_5_moe(BuildContext& build);
Result<std::unique_ptr<DraftModel>> make_qwen3_5_moe_mtp(BuildContext& build,
                                                         const CausalLM& target);
Result<std::unique_ptr<CausalLM>> make_qwen3_moe(BuildContext& build);
Result<std::unique_ptr<CausalLM>> make_qwen3_next(BuildContext& build);
Result<std::unique_ptr<DraftModel>> make_qwen3_next_mtp(BuildContext& build,
                                                        const CausalLM& target);

namespace {

constexpr ModelConfigDefaults kQwenHybrid = {.requires_intermediate_size = false,
                                             .head_dim = 256,
                                             .num_key_value_heads = 2,
                                             .max_position_embeddings = 32768,
                                             .partial_rotary_factor = 0.25};

// What DeepSeek's releases have in common: the rotated part of a head is the one that tables cover.
constexpr ModelConfigDefaults kDeepseekDefaults = {.requires_intermediate_size = false,
                                                   .head_dim_key = "qk_rope_head_dim",
                                                   .max_position_embeddings = 4096};

constexpr ModelConfigDefaults kGlm5Defaults = {.requires_intermediate_size = false,
                                               .head_dim_key = "qk_rope_head_dim",
                                               .max_position_embeddings = 202752,
                                               .rms_norm_eps = 1e-5};

const Architecture kArchitectures[] = {
    {"DeepseekV2ForCausalLM", kDeepseekDefaults, make_deepseek_v2},
    {"DeepseekV32ForCausalLM", kDeepseekDefaults, make_deepseek_v32, make_deepseek_v32_mtp},
    {"DeepseekV3ForCausalLM", kDeepseekDefaults, make_deepseek_v3, make_deepseek_v3_mtp},
    {"Glm4MoeForCausalLM",
     {.requires_intermediate_size = false,
      .num_key_value_heads = 8,
      .max_position_embeddings = 131072,
      .rms_norm_eps = 1e-5,
      .partial_rotary_factor = 0.5},
     make_glm4_moe,
     make_glm4_moe_mtp},
    {"GlmMoeDsaForCausalLM", kGlm5Defaults, make_glm_moe_dsa, make_glm_moe_dsa_mtp},
    {"GptOssForCausalLM",
     {.head_dim = 64,
      .num_key_value_heads = 8,
      .max_position_embeddings = 131072,
      .rms_norm_eps = 1e-5,
      .rope_theta = 150000,
      .sliding_window_rule = SlidingWindowRule::kEvenLayers,
      .sliding_window = 128},
     make_gpt_oss},
    {"LlamaForCausalLM", {}, make_llama},
    {"MixtralForCausalLM",
     {.num_key_value_heads = 8,
      .max_position_embeddings = 131072,
      .rms_norm_eps = 1e-5,
      .rope_theta = 1e6,
      .sliding_window_rule = SlidingWindowRule::kAllLayers},
     make_mixtral},
    {"Qwen3ForCausalLM",
     {.head_dim = 128,
      .max_position_embeddings = 32768,
      .sliding_window_rule = SlidingWindowRule::kUseSlidingWindow,
      .sliding_window = 4096},
     make_qwen3},
    {"Qwen3_5ForConditionalGeneration", kQwenHybrid, make_qwen3_5, make_qwen3_5_mtp},
    {"Qwen3_5MoeForConditionalGeneration", kQwenHybrid, make_qwen3_5_moe, make_qwen3_5_moe_mtp},
    {"Qwen3MoeForCausalLM",
     {.requires_intermediate_size = false,
      .num_key_value_heads = 4,
      .max_position_embeddings = 32768,
      .sliding_window_rule = SlidingWindowRule::kUseForAllLayers,
      .sliding_window = 4096},
     make_qwen3_moe},
    {"Qwen3NextForCausalLM", kQwenHybrid, make_qwen3_next, make_qwen3_next_mtp},
};

}  // namespace

std::span<const Architecture> architectures() {
  return kArchitectures;
}

Result<const Architecture*> find_architecture(std::string_view name) {
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return &architecture;
    known += known.empty() ? "" : ", ";
    known += architecture.name;
  }
  return unimplemented(
      "config.json: architecture '{}' is not supported; atom runs {}", name, known);
}

Result<std::unique_ptr<DraftModel>> create_mtp(const Architecture& architecture,
                                               BuildContext& build,
                                               const CausalLM& target) {
  if (architecture.create_mtp != nullptr) return architecture.create_mtp(build, target);
  std::string known;
  for (const Architecture& other : kArchitectures) {
    if (other.create_mtp == nullptr) continue;
    known += known.empty() ? "" : ", ";
    known += other.name;
  }
  return invalid_argument(
      "--method mtp: checkpoints of {} have no layers for multi-token prediction; {} have. "
      "Expected ngram, eagle3 or off",
      architecture.name,
      known);
}

Result<ModelConfig> load_model_config(const std::string& folder) {
  ASSIGN_OR_RETURN(const Json config, read_config_json(folder));
  ASSIGN_OR_RETURN(const std::string name, architecture_of(config));
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(name));
  return load_model_config(folder, architecture->defaults);
}

}  // namespace atom
