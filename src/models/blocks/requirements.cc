#include "models/blocks/requirements.h"

namespace atom {

Status require_silu(const ModelConfig& config) {
  if (config.hidden_act == "silu" || config.hidden_act == "swish") return {};
  return unimplemented("config.json: hidden_act '{}' is not supported for {}: only 'silu' is",
                       config.hidden_act,
                       config.architecture);
}

Status require_no_query_scaling(const ModelConfig& config) {
  if (config.rope.llama_4_scaling_beta == 0) return {};
  return unimplemented(
      "config.json: llama_4_scaling_beta (position-dependent query scaling) is not "
      "supported for {}",
      config.architecture);
}

}  // namespace atom
