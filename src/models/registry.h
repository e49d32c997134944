// The architectures that atom runs: one row each, the key being architectures[0] of config.json.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "config/model_config.h"
#include "models/blocks/eagle3_config.h"
#include "models/causal_lm.h"
#include "models/draft_model.h"

namespace atom {

struct Architecture {
  const char* name;
  ModelConfigDefaults defaults;
  // An error when the configuration asks for something the architecture's code does not do.
  Result<std::unique_ptr<CausalLM>> (*create)(BuildContext& build);
  // The layers for multi-token prediction that its checkpoints bring; null: they bring none. In the
  // target's BuildContext, after it; the target outlives them.
  Result<std::unique_ptr<DraftModel>> (*create_mtp)(BuildContext& build,
                                                    const CausalLM& target) = nullptr;
};

std::span<const Architecture> architectures();

// The draft layers of the architecture's checkpoints. An error when there are none.
Result<std::unique_ptr<DraftModel>> create_mtp(const Architecture& architecture,
                                               BuildContext& build,
                                               const CausalLM& target);

// An EAGLE-3 head for a target that was built with config.aux_layers. In the target's BuildContext,
// after it; the target outlives it.
Result<std::unique_ptr<DraftModel>> create_eagle3(BuildContext& build,
                                                  const CausalLM& target,
                                                  const Eagle3Config& config);

// An unknown name is an error that lists the known ones.
Result<const Architecture*> find_architecture(std::string_view name);

// config.json and generation_config.json of a checkpoint folder, read with the defaults of its
// architecture.
Result<ModelConfig> load_model_config(const std::string& folder);

}  // namespace atom
