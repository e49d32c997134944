#include "models/registry.h"

#include <nlohmann/json.hpp>

namespace atom {

// One factory per file of this folder.
Result<std::unique_ptr<CausalLM>> make_llama(BuildContext& build);
Result<std::unique_ptr<CausalLM>> make_qwen3(BuildContext& build);

namespace {

const Architecture kArchitectures[] = {
    {"LlamaForCausalLM", {}, make_llama},
    {"Qwen3ForCausalLM",
     {.head_dim = 128,
      .max_position_embeddings = 32768,
      .sliding_window_rule = SlidingWindowRule::kUseSlidingWindow,
      .sliding_window = 4096},
     make_qwen3},
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

Result<ModelConfig> load_model_config(const std::string& folder) {
  ASSIGN_OR_RETURN(const Json config, read_config_json(folder));
  ASSIGN_OR_RETURN(const std::string name, architecture_of(config));
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(name));
  return load_model_config(folder, architecture->defaults);
}

}  // namespace atom
