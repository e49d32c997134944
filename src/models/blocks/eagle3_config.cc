#include "models/blocks/eagle3_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/blocks/requirements.h"

namespace atom {
namespace {

constexpr size_t kMaxAuxLayers = 16;

// How heads of this kind call themselves. Those of latent attention have other layers.
constexpr const char* kArchitectures[] = {
    "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLM"};

Status check_architecture(const ModelConfig& head) {
  if (std::ranges::find(kArchitectures, head.architecture) != std::end(kArchitectures)) return {};
  return unimplemented(
      "config.json: architecture '{}' is not supported for a draft model; expected "
      "LlamaForCausalLMEagle3",
      head.architecture);
}

// The second, the middle and the last layer but two, unless the file names others.
Result<std::vector<int>> read_aux_layers(const ModelConfig& head, const ModelConfig& target) {
  const ConfigReader reader = head.extension();
  constexpr const char* kKey = "eagle_aux_hidden_state_layer_ids";
  ASSIGN_OR_RETURN(const Json* eagle, reader.get_object("eagle_config"));
  static const Json kNothing = Json::object();
  const ConfigReader options(eagle == nullptr ? kNothing : *eagle, "config.json: eagle_config");
  ASSIGN_OR_RETURN(const bool reads_aux, options.get_bool("use_aux_hidden_state", true));
  if (!reads_aux) {
    return options.wrong("use_aux_hidden_state", *options.find("use_aux_hidden_state"), "true");
  }
  const int32_t num_layers = target.num_hidden_layers;
  std::vector<int64_t> ids = {2, num_layers / 2, num_layers - 3};
  if (options.has(kKey)) {
    ASSIGN_OR_RETURN(ids, options.get_ints(kKey, 0, num_layers - 1, kMaxAuxLayers));
  }
  const bool ascends = std::ranges::is_sorted(ids, std::less_equal<>());
  if (!ascends || ids.empty() || ids.front() < 0) {
    return invalid_argument(
        "config.json: the head reads the layers {} of the model, which has {}; expected ascending "
        "ids of them as 'eagle_config.{}'",
        fmt::join(ids, ", "),
        num_layers,
        kKey);
  }
  const auto count = static_cast<int64_t>(ids.size());
  ASSIGN_OR_RETURN(const int64_t told,
                   reader.get_int("num_aux_hidden_states", 1, kMaxAuxLayers, count));
  if (told != count) {
    return reader.wrong("num_aux_hidden_states",
                        *reader.find("num_aux_hidden_states"),
                        fmt::format("{}, the layers that it reads", count));
  }
  return std::vector<int>(ids.begin(), ids.end());
}

Status check_sizes(const ModelConfig& head, const ModelConfig& target) {
  if (head.vocab_size != target.vocab_size) {
    return invalid_argument(
        "config.json: 'vocab_size' is {}, but the model's is {}: it drafts for a model of another "
        "vocabulary",
        head.vocab_size,
        target.vocab_size);
  }
  ASSIGN_OR_RETURN(const int64_t hidden_size,
                   head.extension().get_int("target_hidden_size", 1, INT32_MAX, head.hidden_size));
  if (hidden_size == target.hidden_size) return {};
  return invalid_argument(
      "config.json: '{}' is {}, but the model's hidden_size is {}: it drafts for another model",
      head.extension().has("target_hidden_size") ? "target_hidden_size" : "hidden_size",
      hidden_size,
      target.hidden_size);
}

Result<Eagle3Config> read_config(const std::string& folder, const ModelConfig& target) {
  Eagle3Config config;
  ASSIGN_OR_RETURN(config.model, load_model_config(folder, ModelConfigDefaults{}));
  ModelConfig& head = config.model;
  RETURN_IF_ERROR(check_architecture(head));
  RETURN_IF_ERROR(require_silu(head));
  RETURN_IF_ERROR(require_no_query_scaling(head));
  RETURN_IF_ERROR(check_sizes(head, target));
  config.target_hidden_size = target.hidden_size;
  ASSIGN_OR_RETURN(config.aux_layers, read_aux_layers(head, target));
  const ConfigReader reader = head.extension();
  ASSIGN_OR_RETURN(const int64_t draft_vocab_size,
                   reader.get_int("draft_vocab_size", 1, head.vocab_size, head.vocab_size));
  config.draft_vocab_size = static_cast<int32_t>(draft_vocab_size);
  ASSIGN_OR_RETURN(config.norm_before_residual, reader.get_bool("norm_before_residual", false));
  ASSIGN_OR_RETURN(config.norm_before_fc, reader.get_bool("norm_before_fc", false));
  ASSIGN_OR_RETURN(config.norms_each_state, reader.get_bool("fc_norm", false));
  ASSIGN_OR_RETURN(config.norm_output, reader.get_bool("norm_output", false));
  head.tie_word_embeddings = false;  // its head is its own, of its own ids
  return config;
}

}  // namespace

Result<Eagle3Config> load_eagle3_config(const std::string& folder, const ModelConfig& target) {
  Result<Eagle3Config> config = read_config(folder, target);
  if (!config.ok()) return config.status().with_context("--draft-model " + folder);
  return config;
}

}  // namespace atom
